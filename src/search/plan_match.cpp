#include "search/plan_match.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/values.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

uint64_t fnv1a(const std::string& text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::string samples_text(int64_t count) {
  return fmt::format("{} sample{}", count, count == 1 ? "" : "s");
}

// Returns the batch sizes that the training phases run with, each size once.
std::vector<int64_t> training_sizes(const SearchRequest& request, int64_t micro) {
  std::vector<int64_t> sizes;
  for (const int64_t window : {request.batch, request.partial_window})
    for (const int64_t size : {std::min(micro, window), window % micro})
      if (size > 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  return sizes;
}

std::vector<int64_t> inference_sizes(int64_t samples, int64_t batch) {
  std::vector<int64_t> sizes = {samples > 0 ? std::min(batch, samples) : batch};
  if (samples % batch > 0 && samples > batch) sizes.push_back(samples % batch);
  return sizes;
}

bool has_phase(const Plan& plan, PhaseKind kind, int64_t samples) {
  return std::any_of(plan.phases.begin(), plan.phases.end(),
                     [&](const PhasePlan& phase) { return phase.samples == samples && phase.name.kind == kind; });
}

class Comparison {
 public:
  Comparison(const Plan& plan, const SearchRequest& request) : plan_(plan), request_(request) {}

  Result<std::vector<std::string>> run() {
    compare("model", plan_.model, request_.model->name());
    compare("device", plan_.device, request_.device->info().name);
    compare("precision", plan_.precision, to_text(request_.graph.precision));
    compare("tf32", plan_.tf32, request_.device->info().tf32);
    compare("batch", plan_.batch.effective, request_.batch);
    if (!facts_.empty()) return std::move(facts_);
    compare_cut();
    compare_data();
    compare_weights();
    if (!facts_.empty()) return std::move(facts_);
    compare_phases();
    compare_levers();
    PLIMSOLL_ASSIGN(const std::string program, program_digest(request_, plan_.batch.micro));
    if (program != plan_.program) facts_.push_back("its layers, loss, metrics or optimizer are not those of this run");
    return std::move(facts_);
  }

 private:
  template <typename T>
  void compare(std::string_view what, const T& then, const T& now) {
    if (then != now) facts_.push_back(fmt::format("{}: {} in the plan, {} in this run", what, then, now));
  }

  void compare_cut() {
    if (request_.micro_batch) compare(kMicroBatch, plan_.batch.micro, *request_.micro_batch);
    if (plan_.batch.micro > request_.piece() && request_.accumulation_steps > 1)
      facts_.push_back(
          fmt::format("micro-batch: {} in the plan, but --gradient-accumulation-steps of this run allows at most {}",
                      plan_.batch.micro, request_.piece()));
    if (plan_.settings.of(kPerMicroBatchNorm) != 0 && !request_.per_micro_batch_norm)
      facts_.push_back("--batchnorm: per-micro-batch in the plan, exact in this run");
  }

  // Compares the types in the plan's graphs with those of the data, because batches are written as the graphs say.
  void compare_data() {
    const DataTypes& now = request_.graph.data;
    for (const PhasePlan& phase : plan_.phases) {
      if (phase.samples == 0 || !facts_.empty()) continue;
      const auto& inputs = request_.model->inputs();
      for (size_t i = 0; i < inputs.size(); ++i)
        compare_port(phase, input_value(inputs[i].name), fmt::format("input '{}'", inputs[i].name), now.inputs[i],
                     inputs[i].sample);
      size_t target = 0;
      for (const Port& port : request_.model->outputs()) {
        if (!port.has_loss) continue;
        compare_port(phase, target_value(port.name), fmt::format("target of '{}'", port.name), now.targets[target++],
                     port.target);
        const bool weights = phase.graph.find(sample_weight_value(port.name)) != kNone;
        if (weights != now.sample_weights)
          facts_.push_back(weights ? "the plan has sample weights, this run has none"
                                   : "this run has sample weights, the plan has none");
      }
    }
    compare_data_bytes();
  }

  void compare_port(const PhasePlan& phase, const std::string& name, const std::string& what, DType dtype,
                    const Shape& sample) {
    const ValueId id = phase.graph.find(name);
    if (id == kNone) return facts_.push_back(fmt::format("the plan has no {}", what));
    std::vector<int64_t> dims = {phase.samples};
    dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
    const TensorType then = phase.graph.type(id);
    if (then.dtype != dtype)
      facts_.push_back(
          fmt::format("{}: {} in the plan, {} in this run", what, keras_name(then.dtype), keras_name(dtype)));
    else if (then.shape.dims != dims)
      facts_.push_back(fmt::format("{}: [{}] in the plan, [{}] in this run", what, fmt::join(then.shape.dims, ", "),
                                   fmt::join(dims, ", ")));
  }

  void compare_weights() {
    for (const Weight& weight : request_.model->weights()) {
      const PersistentSlot* slot = plan_.slot(weight.name);
      if (slot == nullptr || slot->type.shape.dims != weight.shape.dims)
        return facts_.push_back(
            fmt::format("the plan has no weight '{}' of shape [{}]", weight.name, fmt::join(weight.shape.dims, ", ")));
    }
  }

  void compare_data_bytes() {
    const Bytes staged = staged_bytes(request_, plan_.phases);
    // If the device has its own memory, the readers are in host memory and do not count.
    const Bytes fixed = request_.device->info().own_memory ? 0 : request_.data.fixed + request_.data.readers;
    if (fixed + plan_.settings.of(kPrefetch) * staged > plan_.data_bytes)
      facts_.push_back(fmt::format("data buffers: {} in the plan, {} in this run", format_bytes(plan_.data_bytes),
                                   format_bytes(fixed + staged)));
  }

  void compare_phases() {
    for (const int64_t size : training_sizes(request_, plan_.batch.micro))
      if (!has_phase(plan_, plan_.gradient_phase(), size))
        facts_.push_back(
            fmt::format("these data leave a batch of {}, for which the plan has no phase", samples_text(size)));
    if (request_.evaluate_batch == 0) return;
    const PhasePlan* evaluate = plan_.phase(PhaseKind::kEvaluate);
    if (evaluate == nullptr) {
      facts_.push_back("the plan was made without validation: it has no phase to evaluate with");
      return;
    }
    for (const int64_t size : inference_sizes(request_.evaluate_samples, evaluate->samples))
      if (!has_phase(plan_, PhaseKind::kEvaluate, size))
        facts_.push_back(
            fmt::format("the plan has no phase to evaluate {} of the validation data", samples_text(size)));
  }

  void compare_levers() {
    for (const Lever& lever : *request_.levers)
      if (plan_.settings.of(lever.name) != 0 && request_.forbids(lever.name))
        facts_.push_back(fmt::format("the plan uses {}, which this run forbids", lever.name));
  }

  const Plan& plan_;
  const SearchRequest& request_;
  std::vector<std::string> facts_;
};

}  // namespace

Result<std::string> program_digest(const SearchRequest& request, int64_t micro) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto add = [&](Result<Phase> made) -> Status {
    PLIMSOLL_ASSIGN(const Phase phase, std::move(made));
    hash = fnv1a(print(phase.graph), fnv1a(to_text(phase.name), hash));
    return {};
  };
  if (request.batch == 0) return std::string();
  if (micro == request.batch) {
    PLIMSOLL_TRY(add(train_phase(*request.model, micro, request.graph)));
  } else {
    PLIMSOLL_TRY(add(accumulate_phase(*request.model, micro, request.graph)));
    PLIMSOLL_TRY(add(apply_phase(*request.model, request.graph)));
  }
  return fmt::format("{:016x}", hash);
}

Result<std::vector<std::string>> differences(const Plan& plan, const SearchRequest& request) {
  return Comparison(plan, request).run();
}

}  // namespace plimsoll::engine
