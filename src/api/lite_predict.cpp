#include "api/lite_predict.h"

#include <fmt/format.h>
#include <omp.h>

#include <numeric>

#include "api/open_backend.h"
#include "device/process_memory.h"

namespace plimsoll::engine {
namespace {

// The name without the number of the output that some converters add: "serving_default_x:0".
std::string plain_name(const std::string& name) {
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(0, colon);
}

Result<DataSpec> spec_of(const lite::Model& model, const RunOptions& options, bool needs_targets) {
  DataSpec spec;
  spec.needs_targets = needs_targets;
  spec.split = Split::kTest;
  spec.read = options.data.read;
  const auto sample = [&](const lite::Tensor& t) -> Result<Shape> {
    if (t.shape.empty() || t.shape[0] != 1)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: the tensor {} is not for one sample at a time: its first dimension is not 1",
                              options.model, t.name));
    return Shape(std::vector<int64_t>(t.shape.begin() + 1, t.shape.end()));
  };
  for (const int32_t i : model.inputs) {
    PLIMSOLL_ASSIGN(Shape shape, sample(model.tensor(i)));
    spec.inputs.push_back({plain_name(model.tensor(i).name), std::move(shape), false, 0, {}});
  }
  if (!needs_targets) return spec;
  if (model.outputs.size() != 1)
    return fail(Error{
        ErrorCode::kUsage,
        fmt::format("{} has {} outputs; a .tflite file with one can be evaluated", options.model, model.outputs.size()),
        {},
        {"plimsoll predict"}});
  PLIMSOLL_ASSIGN(Shape shape, sample(model.tensor(model.outputs[0])));
  PortSpec output{plain_name(model.tensor(model.outputs[0]).name), shape, false, 0, shape};
  spec.outputs.push_back(output);
  return spec;
}

}  // namespace

bool is_lite_file(const std::string& path) {
  return path.ends_with(".tflite");
}

Result<std::unique_ptr<LiteRun>> LiteRun::open(const RunOptions& options, bool needs_targets) {
  auto run = std::make_unique<LiteRun>();
  RunOptions host = options;
  host.device = "cpu";
  PLIMSOLL_ASSIGN(const auto backend, open_backend(host));
  run->budget_ = choose_budget(host, backend->device().info());
  run->threads_ = options.threads > 0 ? options.threads : omp_get_max_threads();
  PLIMSOLL_ASSIGN(const File file, File::open_read(options.model));
  // The file, what it decodes to, and the kernels' own copies of weights.
  const Bytes budget = run->budget_.bytes;
  const auto check = [&](Bytes more) -> Status {
    const Bytes needed = resident_bytes() + more;
    if (budget == 0 || needed <= budget) return {};
    return fail(Error{ErrorCode::kDoesNotFit,
                      fmt::format("{} does not fit in {}", options.model, format_bytes(budget)),
                      {fmt::format("the process would hold {}", format_bytes(needed))},
                      {fmt::format("--budget {}MiB", (needed + kMiB - 1) / kMiB), "fewer --threads"}});
  };
  PLIMSOLL_TRY(check(6 * file.size()));
  PLIMSOLL_ASSIGN(run->model_, lite::read_lite(options.model));
  lite::widen_constants(run->model_);
  PLIMSOLL_ASSIGN(run->program_, lite::Program::create(run->model_, options.model));
  PLIMSOLL_ASSIGN(DataSpec spec, spec_of(run->model_, options, needs_targets));
  if (needs_targets) {  // of one class per sample, unless the data have the output's shape
    spec.outputs[0].sparse_labels = true;
    spec.outputs[0].classes = spec.outputs[0].sample.rank() == 0 ? 1 : spec.outputs[0].sample.back();
    spec.outputs[0].target = Shape{};
    auto sparse = spec.outputs[0].classes > 1 ? LiteFeed::open(options.data.data, spec)
                                              : Result<LiteFeed>(fail(ErrorCode::kDataShape, ""));
    if (sparse) {
      run->feed_ = std::move(*sparse);
    } else {
      spec.outputs[0].sparse_labels = false;
      spec.outputs[0].target = spec.outputs[0].sample;
      PLIMSOLL_ASSIGN(run->feed_, LiteFeed::open(options.data.data, spec));
    }
  } else {
    PLIMSOLL_ASSIGN(run->feed_, LiteFeed::open(options.data.data, spec));
  }
  PLIMSOLL_TRY(check(run->program_->buffer_bytes() * run->threads_ + run->feed_->bytes()));
  return run;
}

Status LiteRun::predict(const std::function<Status(size_t output, const void* data)>& write,
                        const std::atomic<bool>* stop, const std::function<void(int64_t done)>& progress) {
  std::vector<int64_t> which(static_cast<size_t>(samples()));
  std::iota(which.begin(), which.end(), 0);
  const lite::Program* programs[] = {&*program_};
  return feed_->run(
      which, programs, threads_,
      [&](int64_t, std::span<const lite::Buffers> buffers, auto) -> Status {
        for (size_t i = 0; i < model_.outputs.size(); ++i)
          PLIMSOLL_TRY(write(i, buffers[0].at[static_cast<size_t>(model_.outputs[i])]));
        return {};
      },
      stop, progress);
}

Result<LiteMetrics> LiteRun::evaluate(const std::atomic<bool>* stop,
                                      const std::function<void(int64_t done)>& progress) {
  std::vector<int64_t> which(static_cast<size_t>(samples()));
  std::iota(which.begin(), which.end(), 0);
  const lite::Program* programs[] = {&*program_};
  const int32_t output = model_.outputs[0];
  const lite::Tensor& tensor = model_.tensor(output);
  const TensorType target = feed_->target_types()[0];
  LiteMetrics metrics;
  int64_t right = 0, judged = 0;
  double squares = 0;
  PLIMSOLL_TRY(feed_->run(
      which, programs, threads_,
      [&](int64_t, std::span<const lite::Buffers> buffers, std::span<const std::byte* const> targets) -> Status {
        const void* y = buffers[0].as<void>(output);
        ++metrics.samples;
        if (const auto named = names_class(y, tensor, targets[0], target)) {
          ++judged;
          right += *named;
        }
        const int64_t n = target.shape.elements();
        if (n != tensor.elements()) return {};
        for (int64_t i = 0; i < n; ++i) {
          const double difference = real_at(y, tensor, i) - number_at(targets[0], target.dtype, i);
          squares += difference * difference / static_cast<double>(n);
        }
        return {};
      },
      stop, progress));
  if (judged == metrics.samples) metrics.accuracy = static_cast<double>(right) / static_cast<double>(judged);
  metrics.mean_squared_error = squares / static_cast<double>(std::max<int64_t>(1, metrics.samples));
  return metrics;
}

}  // namespace plimsoll::engine
