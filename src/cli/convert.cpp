// plimsoll convert: data in another format, as a stream.
#include <fmt/format.h>

#include <numeric>

#include "base/json_text.h"
#include "cli/signals.h"
#include "cli/stream_run.h"
#include "device/process_memory.h"

namespace plimsoll::engine {
namespace {

struct ConvertFlags : StreamFlags {
  std::string from, to;
};

Result<int> convert(ConvertFlags& flags) {
  PLIMSOLL_TRY(check_target(flags.to));
  PLIMSOLL_ASSIGN(auto run, StreamRun::start(flags));
  PLIMSOLL_ASSIGN(const auto data, open_all(flags.from, flags.read));
  std::vector<size_t> all(data->arrays().size());
  std::iota(all.begin(), all.end(), size_t{0});
  // A record of small integers grows by up to ten times.
  PLIMSOLL_TRY(run.grant(4 * data->buffer_bytes(all), {}));
  PLIMSOLL_ASSIGN(const auto files, run.write(*data, flags.to));
  nothing_to_lose();
  if (flags.json) {
    const nlohmann::ordered_json json = {{"files", files},
                                         {"arrays", arrays_json(*data)},
                                         {"planned_bytes", run.planned()},
                                         {"peak_bytes", peak_resident_bytes()}};
    answer(json_text(json) + "\n");
  } else {
    answer(fmt::format("{}: {}\n", fmt::join(files, ", "), arrays_text(*data)));
  }
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "write data in another format, as a stream");
  command->add_option("IN", flags->from, "data in the form of --data: " + data_help(true))->required();
  command
      ->add_option("OUT", flags->to,
                   "OUT.npz, X.npy,Y.npy, OUT.safetensors, OUT.tfrecord (several files with --shards) or OUT.csv")
      ->required();
  add_stream_flags(*command, *flags);
  command->footer(
      "Example: plimsoll convert x.npy,y.npy train.tfrecord --shards 4\n"
      "         plimsoll convert photos photos.npz --image-size 96");
  actions[command] = [flags] {
    install_signal_handlers("interrupted: stopping; nothing is written", flags->json);
    return convert(*flags);
  };
}

}  // namespace plimsoll::engine
