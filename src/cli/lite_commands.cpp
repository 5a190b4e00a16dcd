#include "cli/lite_commands.h"

#include <fmt/format.h>

#include "api/lite_predict.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/signals.h"
#include "device/process_memory.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

std::function<void(int64_t)> progress_of(const CommonFlags& flags, int64_t samples) {
  if (flags.quiet || !can_redraw()) return nullptr;
  return
      [samples](int64_t done) { draw(fmt::format("\r{}/{} samples{}", done, samples, done == samples ? "\n" : "")); };
}

Status kept(const CommonFlags& flags, const LiteRun& run, const std::string& saved) {
  const Bytes peak = peak_resident_bytes() - held_by_tools(), budget = run.budget().bytes;
  message(flags, fmt::format("process peak: {} of {}", format_bytes(peak), format_bytes(budget)));
  if (budget == 0 || peak <= budget) return {};
  Error error{ErrorCode::kPeakAboveBudget,
              fmt::format("the process held {}, more than the budget of {}", format_bytes(peak), format_bytes(budget)),
              {},
              {}};
  if (!saved.empty()) error.fact(saved);
  return fail(std::move(error));
}

DType dtype_of(lite::Type type) {
  switch (type) {
    case lite::Type::kInt8:
      return DType::kInt8;
    case lite::Type::kUInt8:
    case lite::Type::kBool:
      return DType::kUInt8;
    case lite::Type::kInt32:
      return DType::kInt32;
    case lite::Type::kInt64:
      return DType::kInt64;
    case lite::Type::kFloat16:
      return DType::kFloat16;
    default:
      return DType::kFloat32;
  }
}

}  // namespace

Result<int> predict_lite(CommonFlags& flags, const std::string& output) {
  PLIMSOLL_TRY(flags.resolve(Mode::kPredict));
  PLIMSOLL_ASSIGN(const auto run, LiteRun::open(flags.options, false));
  const lite::Model& model = run->model();
  std::vector<NpyWriter> writers;
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    const lite::Tensor& t = model.tensor(model.outputs[i]);
    std::vector<int64_t> dims{run->samples()};
    dims.insert(dims.end(), t.shape.begin() + (t.shape.empty() ? 0 : 1), t.shape.end());
    std::string path = output;
    if (model.outputs.size() > 1) path.insert(path.rfind(".npy"), fmt::format(".{}", i));
    PLIMSOLL_ASSIGN(NpyWriter writer, NpyWriter::create(path, dtype_of(t.type), dims));
    writers.push_back(std::move(writer));
  }
  PLIMSOLL_TRY(run->predict(
      [&](size_t i, const void* data) {
        const auto bytes = static_cast<size_t>(model.tensor(model.outputs[i]).bytes());
        return writers[i].write({static_cast<const std::byte*>(data), bytes});
      },
      &stop_requested(), progress_of(flags, run->samples())));
  for (NpyWriter& writer : writers) PLIMSOLL_TRY(writer.commit());
  nothing_to_lose();
  message(flags, fmt::format("{} predictions in {}", run->samples(), output));
  PLIMSOLL_TRY(kept(flags, *run, fmt::format("{} was written", output)));
  return 0;
}

Result<int> evaluate_lite(CommonFlags& flags) {
  PLIMSOLL_TRY(flags.resolve(Mode::kPredict));
  PLIMSOLL_ASSIGN(const auto run, LiteRun::open(flags.options, true));
  PLIMSOLL_ASSIGN(const LiteMetrics metrics, run->evaluate(&stop_requested(), progress_of(flags, run->samples())));
  nothing_to_lose();
  const std::string name = metrics.accuracy ? "accuracy" : "mean_squared_error";
  const double value = metrics.accuracy.value_or(metrics.mean_squared_error);
  nlohmann::ordered_json found;
  found["metrics"][name] = value;
  if (flags.json)
    answer(json_text(found) + "\n");
  else
    answer(fmt::format("{}: {:.6g}\n", name, value));
  PLIMSOLL_TRY(kept(flags, *run, ""));
  return 0;
}

}  // namespace plimsoll::engine
