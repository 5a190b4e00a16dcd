#include "api/quantize.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "api/lite_feed.h"
#include "api/run.h"
#include "device/process_memory.h"
#include "model/text/text_inputs.h"
#include "shrink/lite/convert.h"

namespace plimsoll::engine {
namespace {

using lite::Program;

constexpr int64_t kMostCompared = 20000;

// The model as float32 operators of TensorFlow Lite. The session that holds the weights ends before this returns.
struct Converted {
  lite::Model model;
  DataSpec spec;  // of the model's data, with targets if it has a loss
  bool has_loss = false;
  Budget budget;
  int threads = 1;
};

Result<OpenModel> open_with_loss(const RunOptions& options, bool& has_loss) {
  RunOptions wanted = options;
  wanted.overrides.needs_loss = true;
  auto opened = open_model(wanted);
  has_loss = opened.has_value();
  if (opened || opened.error().code != ErrorCode::kNotCompiled) return opened;
  return open_model(options);
}

// A file whose input is what a text layer makes would take other data than the model.
Status check_no_strings(const Model& model) {
  std::vector<std::string> facts;
  for (const InputSpec& input : model.architecture().inputs())
    if (input.text)
      facts.push_back(fmt::format("layer '{}' ({}): TensorFlow Lite has no operators for its strings",
                                  input.text->layer, input.text->class_name));
  if (facts.empty()) return {};
  return fail(Error{ErrorCode::kUnsupported,
                    fmt::format("the model '{}' takes strings", model.name()),
                    std::move(facts),
                    {"save the model in Keras without this layer, and compute its numbers in the app"}});
}

Result<Converted> convert_model(const RunOptions& given) {
  RunOptions options = given;
  options.mode = Mode::kPredict;
  options.batch_size = 1;
  options.precision = "float32";
  options.device = "cpu";
  options.overrides.needs_training = false;
  options.overrides.needs_loss = false;
  Converted made;
  PLIMSOLL_ASSIGN(OpenModel opened, open_with_loss(options, made.has_loss));
  options.data = {};
  PLIMSOLL_ASSIGN(const auto run, Run::open(std::move(opened), options));
  PLIMSOLL_TRY(check_no_strings(run->model()));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  GraphOptions graph{DType::kFloat32, {}};
  for (const Port& port : run->model().inputs()) {
    const bool integer = port.dtype != DType::kFloat32 && port.dtype != DType::kFloat64 &&
                         port.dtype != DType::kFloat16 && port.dtype != DType::kBFloat16;
    graph.data.inputs.push_back(integer ? DType::kInt32 : DType::kFloat32);
  }
  PLIMSOLL_ASSIGN(const Phase phase, predict_phase(run->model(), 1, graph));
  PLIMSOLL_ASSIGN(const HostView weights, run->session().look());
  const auto weight_of = [&](const std::string& name) -> Result<TensorView> {
    const TensorView view = weights[name];
    if (view.data == nullptr || view.type.dtype != DType::kFloat32)
      return fail(ErrorCode::kInternal, fmt::format("the weight {} is missing", name));
    return view;
  };
  PLIMSOLL_ASSIGN(made.model, lite::convert(phase.graph, run->model(), weight_of));
  made.spec = data_spec(run->model(), made.has_loss);
  made.spec.split = Split::kTrain;
  made.spec.read = given.data.read;
  made.budget = run->budget();
  made.threads = given.threads > 0 ? given.threads : omp_get_max_threads();
  return made;
}

Status check_room(const Budget& budget, Bytes more, const char* purpose) {
  const Bytes needed = resident_bytes() + more;
  if (budget.bytes == 0 || needed <= budget.bytes) return {};
  return fail(Error{ErrorCode::kDoesNotFit,
                    fmt::format("{} does not fit in {}", purpose, format_bytes(budget.bytes)),
                    {fmt::format("the process would hold {}", format_bytes(needed))},
                    {fmt::format("--budget {}MiB", (needed + kMiB - 1) / kMiB), "fewer --threads"}});
}

Bytes constant_bytes(const lite::Model& model) {
  Bytes sum = 0;
  for (const lite::Tensor& t : model.tensors)
    if (t.constant()) sum += t.bytes();
  return sum;
}

Result<LiteFeed> open_feed(const std::string& argument, DataSpec spec, bool targets) {
  spec.needs_targets = targets;
  return LiteFeed::open(argument, spec);
}

Status check_patterns(const lite::Model& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool any = std::any_of(model.tensors.begin(), model.tensors.end(), [&](const lite::Tensor& t) {
      return fnmatch(pattern.c_str(), t.layer.c_str(), 0) == 0;
    });
    if (any) continue;
    std::vector<std::string> layers;
    for (const lite::Tensor& t : model.tensors)
      if (!t.layer.empty() && std::find(layers.begin(), layers.end(), t.layer) == layers.end())
        layers.push_back(t.layer);
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--keep-float {}: no layer has this name", pattern),
                      {fmt::format("layers: {}", fmt::join(layers, ", "))},
                      {}});
  }
  return {};
}

// Compares the tensors of two models that stand for the same value.
class Comparison {
 public:
  Comparison(const lite::Model& model, const lite::Int8Model& made) : from_(model), made_(made) {
    // The last tensor of a layer is its result.
    for (size_t i = 0; i < made.origin.size(); ++i)
      if (made.origin[i] >= 0 && model.tensor(made.origin[i]).type == lite::Type::kFloat32 &&
          made.model.tensors[i].type == lite::Type::kInt8)
        last_[model.tensor(made.origin[i]).layer] = i;
  }

  void add(const lite::Buffers& exact, const lite::Buffers& rounded) {
    for (const auto& [layer, i] : last_) {
      Sums& sums = sums_[layer];
      const int32_t origin = made_.origin[i];
      const auto* x = exact.as<float>(origin);
      const int64_t n = from_.tensor(origin).elements();
      for (int64_t e = 0; e < n; ++e) {
        if (x[e] < lite::kHiddenBelow) continue;
        const double difference = real_at(rounded.at[i], made_.model.tensors[i], e) - x[e];
        sums.noise += difference * difference;
        sums.signal += double{x[e]} * x[e];
        ++sums.count;
      }
    }
  }

  std::vector<LayerError> result() const {
    std::vector<LayerError> list;
    for (const auto& [layer, sums] : sums_) {
      if (sums.count == 0) continue;
      LayerError error;
      error.layer = layer;
      error.mean_square = sums.noise / static_cast<double>(sums.count);
      error.ratio = 10 * std::log10(std::max(sums.signal, 1e-30) / std::max(sums.noise, 1e-30));
      error.float_bytes = lite::weight_bytes(from_, layer);
      error.bytes = lite::weight_bytes(made_.model, layer);
      list.push_back(std::move(error));
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const LayerError& a, const LayerError& b) { return a.ratio < b.ratio; });
    return list;
  }

 private:
  struct Sums {
    double noise = 0, signal = 0;
    int64_t count = 0;
  };
  const lite::Model& from_;
  const lite::Int8Model& made_;
  std::map<std::string, size_t> last_;
  std::map<std::string, Sums> sums_;
};

struct Quantization {
  const QuantizeOptions& options;
  Converted& from;
  QuantizeReport report = {};

  std::function<void(int64_t)> progress(const char* doing, int64_t all) const {
    if (!options.progress) return nullptr;
    return [this, doing, all](int64_t done) { options.progress(doing, done, all); };
  }
  bool keeps(const std::string& layer) const {
    return std::any_of(options.keep_float.begin(), options.keep_float.end(),
                       [&](const std::string& pattern) { return fnmatch(pattern.c_str(), layer.c_str(), 0) == 0; });
  }

  Result<lite::Int8Model> integers();
  Result<lite::Int8Model> make();
  Status compare(const lite::Int8Model& made);
};

Result<lite::Int8Model> Quantization::integers() {
  if (options.equalizes) report.equalized = lite::equalize(from.model);
  PLIMSOLL_ASSIGN(LiteFeed feed, open_feed(options.run.data.data, from.spec, false));
  PLIMSOLL_ASSIGN(const Program program, Program::create(from.model, options.run.model, true));
  PLIMSOLL_TRY(check_room(from.budget,
                          program.buffer_bytes() * from.threads + feed.bytes() + lite::Calibrator::bytes(from.model) +
                              constant_bytes(from.model),
                          "the calibration"));
  lite::Calibrator calibrator(program);
  const std::vector<int64_t> which = spread_samples(feed.samples(), options.calibration_samples);
  const auto all = static_cast<int64_t>(which.size());
  const Program* programs[] = {&program};
  PLIMSOLL_TRY(feed.run(
      which, programs, from.threads,
      [&](int64_t, std::span<const lite::Buffers> buffers, auto) -> Status {
        calibrator.see(buffers[0]);
        return {};
      },
      options.stop, progress("looking for extremes", all)));
  if (options.int8.method != lite::RangeMethod::kMinMax)
    PLIMSOLL_TRY(feed.run(
        which, programs, from.threads,
        [&](int64_t, std::span<const lite::Buffers> buffers, auto) -> Status {
          calibrator.count(buffers[0]);
          return {};
        },
        options.stop, progress("calibrating", all)));
  report.calibrated = all;
  lite::Int8Options int8 = options.int8;
  int8.keeps_float = [&](const std::string& layer) { return keeps(layer); };
  return lite::quantize_int8(from.model, calibrator, int8);
}

Result<lite::Int8Model> Quantization::make() {
  lite::Int8Model made;
  const auto keeps_float = [&](const std::string& layer) { return keeps(layer); };
  switch (options.format) {
    case LiteFormat::kInt8:
      return integers();
    case LiteFormat::kFloat16:
      made.model = lite::quantize_float16(from.model);
      break;
    case LiteFormat::kDynamic:
      made.model = lite::quantize_weights(from.model, keeps_float);
      break;
    case LiteFormat::kFloat32:
      made.model = from.model;
  }
  made.origin.assign(made.model.tensors.size(), -1);
  return made;
}

// Runs both models on the data, and counts what changed.
Status Quantization::compare(const lite::Int8Model& made) {
  const auto& data = options.run.data;
  const std::string argument = data.validation_data.empty() ? data.data : data.validation_data;
  if (argument.empty()) return {};
  DataSpec spec = from.spec;
  if (!data.validation_data.empty()) spec.split = Split::kValidation;
  auto with = open_feed(argument, spec, from.has_loss);
  // Calibration needs no targets.
  if (!with && data.validation_data.empty() && from.has_loss) with = open_feed(argument, spec, false);
  if (!with) return fail(std::move(with.error()));
  LiteFeed& feed = *with;
  PLIMSOLL_ASSIGN(const Program exact, Program::create(from.model, options.run.model, true));
  PLIMSOLL_ASSIGN(const Program rounded, Program::create(made.model, options.output, true));
  PLIMSOLL_TRY(check_room(from.budget, (exact.buffer_bytes() + rounded.buffer_bytes()) * from.threads + feed.bytes(),
                          "the comparison"));
  Comparison comparison(from.model, made);
  const std::vector<int64_t> which =
      spread_samples(feed.samples(), data.validation_data.empty() ? options.calibration_samples : kMostCompared);
  const int32_t a = from.model.outputs[0], b = made.model.outputs[0];
  const lite::Tensor &exact_tensor = from.model.tensor(a), &rounded_tensor = made.model.tensor(b);
  const bool classes = from.model.outputs.size() == 1 && exact_tensor.shape.size() <= 2;
  int64_t same = 0, right = 0, exact_right = 0, judged = 0;
  double noise = 0;
  const Program* programs[] = {&exact, &rounded};
  const auto after = [&](int64_t, std::span<const lite::Buffers> buffers,
                         std::span<const std::byte* const> targets) -> Status {
    comparison.add(buffers[0], buffers[1]);
    const void *x = buffers[0].as<void>(a), *y = buffers[1].as<void>(b);
    const int64_t n = exact_tensor.elements();
    for (int64_t e = 0; e < n; ++e) {
      const double difference = real_at(x, exact_tensor, e) - real_at(y, rounded_tensor, e);
      noise += difference * difference / static_cast<double>(n);
    }
    if (!classes) return {};
    same += n > 1 ? largest_of(x, exact_tensor) == largest_of(y, rounded_tensor)
                  : (real_at(x, exact_tensor, 0) > 0.5) == (real_at(y, rounded_tensor, 0) > 0.5);
    if (targets.size() != 1) return {};
    const auto before = names_class(x, exact_tensor, targets[0], feed.target_types()[0]);
    const auto now = names_class(y, rounded_tensor, targets[0], feed.target_types()[0]);
    if (!before || !now) return {};
    ++judged;
    exact_right += *before;
    right += *now;
    return {};
  };
  PLIMSOLL_TRY(feed.run(which, programs, from.threads, after, options.stop,
                        progress("comparing", static_cast<int64_t>(which.size()))));
  const auto count = static_cast<double>(which.size());
  report.compared = static_cast<int64_t>(which.size());
  report.output_mean_square = noise / count;
  if (classes) report.agreement = static_cast<double>(same) / count;
  if (judged == report.compared) {
    report.float32_accuracy = static_cast<double>(exact_right) / count;
    report.accuracy = static_cast<double>(right) / count;
  }
  report.layers = comparison.result();
  return {};
}

}  // namespace

std::string_view name_of(LiteFormat format) {
  switch (format) {
    case LiteFormat::kFloat32:
      return "float32";
    case LiteFormat::kFloat16:
      return "float16";
    case LiteFormat::kDynamic:
      return "dynamic";
    case LiteFormat::kInt8:
      return "int8";
  }
  return "?";
}

Result<QuantizeReport> quantize(const QuantizeOptions& options) {
  if (options.format == LiteFormat::kInt8 && options.run.data.data.empty())
    return fail(Error{ErrorCode::kUsage,
                      "--int8 needs data: the ranges of the values inside the model are measured on samples",
                      {},
                      {"--data x.npy   some hundred samples of the training data",
                       "--dynamic      weights alone become integers, which needs no data"}});
  PLIMSOLL_ASSIGN(Converted from, convert_model(options.run));
  PLIMSOLL_TRY(check_patterns(from.model, options.keep_float));
  // The file in two copies, and the weights in the order of the kernels.
  PLIMSOLL_TRY(check_room(from.budget, 3 * constant_bytes(from.model), "the converted model"));
  Quantization work{options, from};
  {
    PLIMSOLL_ASSIGN(const auto float32, lite::encode(from.model));
    work.report.float32_bytes = static_cast<Bytes>(float32.size());
  }
  PLIMSOLL_ASSIGN(lite::Int8Model made, work.make());
  made.model.description = fmt::format("Plimsoll, {}", name_of(options.format));
  QuantizeReport& report = work.report;
  report.operators = static_cast<int64_t>(made.model.operators.size());
  PLIMSOLL_ASSIGN(const auto file, lite::encode(made.model));
  report.file_bytes = static_cast<Bytes>(file.size());
  lite::widen_constants(made.model);
  PLIMSOLL_TRY(work.compare(made));
  PLIMSOLL_TRY(lite::write_lite(file, options.output));
  report.output = options.output;
  report.format = name_of(options.format);
  report.kept = options.keep_float;
  report.left_float = made.left_float;
  report.peak_bytes = peak_resident_bytes();
  report.budget_bytes = from.budget.bytes;
  return report;
}

}  // namespace plimsoll::engine
