// plimsoll shrink resize: a narrower model, smaller kernels, a smaller input, a layer less.
#include <fmt/format.h>

#include "api/planning_limit.h"
#include "base/json.h"
#include "cli/shrink.h"
#include "cli/signals.h"
#include "model/what_if.h"
#include "shrink/resize.h"

namespace plimsoll::engine {
namespace {

struct ResizeFlags : ShrinkFlags {
  double width = 1;
  std::optional<std::array<int64_t, 2>> input_size;
  int64_t kernel = 0, multiple = 1;
  std::vector<std::string> drop;
};

// Messages of model/what_if.h name the flags of `plan`.
Error in_flags_of_shrink(Error error) {
  const auto replace = [](std::string& text) {
    for (const auto& [ours, theirs] : {std::pair{"--without-layer", "--drop-layer"},
                                       {"--max-kernel", "--kernel"},
                                       {"--input-shape", "--input-size"}})
      for (size_t at = text.find(ours); at != std::string::npos; at = text.find(ours, at + 1))
        text.replace(at, std::string(ours).size(), theirs);
  };
  replace(error.what);
  for (std::string& text : error.facts) replace(text);
  for (std::string& text : error.remedies) replace(text);
  return error;
}

Result<WhatIf> changes(const ResizeFlags& flags, const Description& description) {
  WhatIf what_if;
  what_if.largest_kernel = flags.kernel;
  what_if.without_layers = flags.drop;
  if (!flags.input_size) return what_if;
  std::vector<int64_t> sample = declared_input(description);
  if (sample.empty())
    return fail(Error{ErrorCode::kUsage,
                      "--input-size: the model has several inputs, or declares no complete shape of its input",
                      {},
                      {"leave out --input-size: such a model takes inputs of any size"}});
  if (sample.size() < 2 || sample.size() > 3)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--input-size: a sample of this model is [{}], which is no picture or sequence",
                                  fmt::join(sample, ",")),
                      {},
                      {"plimsoll reduce DATA --pca N   for fewer features"}});
  sample[0] = (*flags.input_size)[0];
  if (sample.size() == 3) sample[1] = (*flags.input_size)[1];
  what_if.input_shape = std::move(sample);
  return what_if;
}

std::string carried_text(const char* what, const std::vector<std::string>& weights) {
  if (weights.empty()) return "";
  constexpr size_t kShown = 6;
  const std::vector<std::string> first(weights.begin(),
                                       weights.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, weights.size())));
  return fmt::format("{}: {}{}\n", what, fmt::join(first, ", "),
                     weights.size() > kShown ? fmt::format(" and {} more", weights.size() - kShown) : "");
}

Result<int> resize(ResizeFlags& flags) {
  if (flags.width == 1 && !flags.input_size && flags.kernel == 0 && flags.drop.empty())
    return fail(Error{ErrorCode::kUsage, "nothing says what is to be smaller", {}, {"--width 0.5"}});
  PLIMSOLL_ASSIGN(Opened opened, open_to_shrink(flags));
  PLIMSOLL_ASSIGN(ShrinkPrice before, price_inside(flags, opened.held, opened.source()));
  before.file = opened.bytes;
  std::vector<std::string> cropped, anew;
  std::vector<GroupReport> groups;
  const bool dropped = !flags.drop.empty();
  const RunOptions& options = flags.options;
  auto resized = within_limit(options, reading_limit(options), [&]() -> Result<HeldModel> {
    HeldModel made = std::move(opened.held);
    PLIMSOLL_ASSIGN(const WhatIf what_if, changes(flags, made.description));
    if (what_if.any()) {
      auto description = change(made.description, what_if);
      if (!description) return fail(in_flags_of_shrink(description.error()));
      auto carried = carry_over(made, std::move(*description));
      if (!carried) return fail(in_flags_of_shrink(carried.error()));
      cropped = std::move(carried->cropped);
      anew = std::move(carried->anew);
      made = std::move(carried->model);
    }
    if (flags.width == 1) return made;
    PLIMSOLL_ASSIGN(const ChannelMap map, find_channels(made.description, made.model, true));
    const ChannelValues values = channel_values(made, map);
    const std::vector<bool> keep = choose(map, scores(made, map, Importance::kMagnitude, {}), values.free,
                                          {1 - flags.width, flags.multiple, false, false});
    groups = group_reports(made.model, map, keep);
    if (std::all_of(keep.begin(), keep.end(), [](bool one) { return one; }))
      return fail(no_group_can_be_cut(groups, "--width"));
    fold_constants(made, map, values, keep);
    return cut(made, map, keep, true);
  });
  PLIMSOLL_TRY(resized);
  const HeldModel held = std::move(*resized);
  // A dropped layer moves the places of others in the file.
  const KerasArchive* source = dropped ? nullptr : opened.source();
  PLIMSOLL_ASSIGN(ShrinkPrice after, price_inside(flags, held, source));
  PLIMSOLL_ASSIGN(after.file, measured_bytes(held, source, flags.output));
  PLIMSOLL_TRY(write_held(held, source, flags.output));
  nothing_to_lose();
  auto more = ordered_object({{"groups", groups_json(groups)}, {"cropped", cropped}, {"initialized", anew}});
  return report_shrunk(flags, before, after, {}, std::move(more),
                       groups_text(groups) + carried_text("a part was taken of", cropped) +
                           carried_text("initialised anew, because nothing fits them", anew));
}

}  // namespace

void add_shrink_resize(CLI::App& shrink, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<ResizeFlags>();
  CLI::App* command = shrink.add_subcommand(
      "resize", "write a model with fewer channels, smaller kernels, a smaller input or a layer less");
  add_shrink_flags(*command, *flags);
  command->add_option("--width", flags->width, "the share of the filters and units of each layer that stays: 0.5")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  command->add_option_function<std::string>(
      "--input-size", [flags](const std::string& text) { flags->input_size = parse_image_size(text, "--input-size"); },
      "height and width of the input, or the length of a sequence: 96, or 96,128");
  command->add_option("--kernel", flags->kernel, "larger kernels of convolutions shrink to this size")
      ->check(whole_above_zero());
  command->add_option("--drop-layer", flags->drop, "leave out a layer with one input: conv2d_1")->delimiter(',');
  command->add_option("--multiple", flags->multiple, "widths are rounded to multiples of this")
      ->check(whole_above_zero())
      ->capture_default_str();
  command->footer(
      "Example: plimsoll shrink resize model.keras --width 0.5 -o small.keras\n"
      "         plimsoll shrink resize model.keras --input-size 96 --kernel 3 -o small.keras");
  actions[command] = [flags] {
    install_signal_handlers("interrupted: stopping; nothing is written", flags->json);
    return resize(*flags);
  };
}

}  // namespace plimsoll::engine
