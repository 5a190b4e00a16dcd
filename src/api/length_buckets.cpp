#include "api/length_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostBuckets = 32, kMostChosen = 5;

bool has_open_steps(const InputSpec& spec) {
  return spec.known && !spec.dims.empty() && !spec.dims[0];
}

// The inputs whose number of steps is declared with None.
Result<std::vector<size_t>> sequence_inputs(const Model& model) {
  std::vector<size_t> inputs;
  const auto& specs = model.architecture().inputs();
  for (size_t i = 0; i < specs.size(); ++i)
    if (has_open_steps(specs[i]) && model.inputs()[i].sample.rank() > 0) inputs.push_back(i);
  if (!inputs.empty()) return inputs;
  return fail(Error{ErrorCode::kUsage,
                    "--buckets needs a model whose number of steps is open: keras.Input((None,)), (None, 8)",
                    {fmt::format("input '{}' is declared with [{}]", specs[0].name, shown_dims(specs[0]))},
                    {"remove --buckets"}});
}

// Returns whether a sample of the shape `cut` is the beginning of one of the shape `whole`.
bool begins(const Shape& cut, const Shape& whole) {
  if (cut.rank() != whole.rank()) return false;
  for (size_t i = 0; i < cut.rank(); ++i)
    if (i == 0 ? cut[i] > whole[i] : cut[i] != whole[i]) return false;
  return true;
}

Status check_begins(const Model& cut, const Model& whole) {
  for (size_t i = 0; i < whole.outputs().size(); ++i)
    if (const Port& a = cut.outputs()[i], &b = whole.outputs()[i]; a.has_loss && !begins(a.target, b.target))
      return fail(ErrorCode::kUsage,
                  fmt::format("a target of the output '{}' is [{}] instead of [{}], which is not its beginning", b.name,
                              to_text(a.target), to_text(b.target)));
  return {};
}

Result<std::unique_ptr<Model>> model_of_length(const Model& model, const std::vector<size_t>& inputs, int64_t steps) {
  std::vector<Shape> samples;
  for (const Port& port : model.inputs()) samples.push_back(port.sample);
  for (const size_t i : inputs) samples[i].dims[0] = std::min(samples[i].dims[0], steps);
  auto made = model.with_inputs(samples);
  Status fits = made ? check_begins(*made, model) : Status();
  if (made && fits) return std::make_unique<Model>(std::move(*made));
  const Error& why = made ? fits.error() : made.error();
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("--buckets: the model cannot have {} steps", steps),
                    {why.what},
                    {"--buckets with larger lengths", "remove --buckets"}});
}

Result<std::vector<int64_t>> given_limits(const std::vector<int64_t>& asked, int64_t longest) {
  std::vector<int64_t> limits = {longest};
  for (const int64_t steps : asked)
    if (steps < longest) limits.push_back(steps);
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  if (limits.size() <= kMostBuckets) return limits;
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("--buckets has {} lengths, at most {} are possible", limits.size(), kMostBuckets),
                    {"each length has a plan of its own"},
                    {"--buckets auto"}});
}

BoundCounts counts_of_all(const LengthBuckets& buckets, const Plan& longest) {
  BoundCounts counts = plimsoll::engine::counts_of(longest.phases);
  for (size_t i = 1; i < buckets.list.size(); ++i)
    if (buckets.list[i].samples > 0) counts += plimsoll::engine::counts_of(buckets.list[i].plan.phases);
  return counts;
}

// The places of the values that outlive a window.
std::vector<PersistentSlot> kept_of(const Plan& plan) {
  std::vector<PersistentSlot> kept;
  std::copy_if(plan.persistent.begin(), plan.persistent.end(), std::back_inserter(kept),
               [](const PersistentSlot& slot) { return slot.category != Category::kGradients; });
  std::sort(kept.begin(), kept.end(),
            [](const PersistentSlot& a, const PersistentSlot& b) { return a.offset < b.offset; });
  return kept;
}

}  // namespace

Status check_bucket_options(const RunOptions& options) {
  if (!options.data.buckets) return {};
  const auto refused = [](const char* flag) {
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--buckets cannot be combined with {}", flag),
                      {},
                      {fmt::format("remove {}", flag), "remove --buckets"}});
  };
  if (options.automatic_batch) return refused("--batch-size auto");
  if (!options.overrides.input_shape.empty()) return refused("--input-shape");
  return {};
}

Result<LengthBuckets> open_buckets(const RunOptions& options, const Model& model, const ColumnSource& source) {
  PLIMSOLL_ASSIGN(const std::vector<size_t> inputs, sequence_inputs(model));
  int64_t longest = 1;
  for (const size_t i : inputs) longest = std::max(longest, model.inputs()[i].sample[0]);
  if (longest > std::numeric_limits<int32_t>::max())
    return fail(ErrorCode::kUsage, fmt::format("--buckets: {} steps are too many to group by", longest));
  const int64_t begin = source.begin(), end = begin + source.samples();
  PLIMSOLL_ASSIGN(const auto lengths, sequence_lengths(source.data(), inputs, options.data.padding, begin, end));
  const int64_t most = *std::max_element(lengths.begin(), lengths.end());
  if (most < longest)
    options.tell(fmt::format("note: no sample is longer than {} steps, but the arrays have {}: cut them to save memory",
                             most, longest));
  std::vector<int64_t> limits = choose_limits(lengths, longest, kMostChosen);
  if (!options.data.buckets->empty()) {
    PLIMSOLL_ASSIGN(limits, given_limits(*options.data.buckets, longest));
  }
  const auto window = checked_multiply(options.batch_size, options.accumulation_steps);
  if (!window)
    return fail(ErrorCode::kUsage, fmt::format("{} batches of {} are too many samples to count",
                                               options.accumulation_steps, options.batch_size));
  const int64_t samples = std::min(*window, source.samples());
  LengthBuckets buckets{LengthGroups(lengths, std::move(limits), begin, samples), {}, samples};
  for (const LengthGroup& group : buckets.groups.groups()) {
    buckets.list.push_back({group.steps, group.samples, nullptr, {}, 0});
    if (buckets.list.size() == 1 || group.samples == 0) continue;
    PLIMSOLL_ASSIGN(buckets.list.back().model, model_of_length(model, inputs, group.steps));
  }
  return buckets;
}

Bytes reserve_for(const LengthBuckets& buckets, const Device& device, const Plan& longest) {
  const BoundCounts one = plimsoll::engine::counts_of(longest.phases);
  BoundCounts all = one;
  for (size_t i = 1; i < buckets.list.size(); ++i)
    if (buckets.list[i].samples > 0) all += one;
  return device.overhead_bound(all) - device.overhead_bound(one);
}

Bytes peak_of(const LengthBuckets& buckets, const Device& device, const Plan& longest) {
  Bytes arena = longest.arena_bytes, data = longest.data_bytes;
  for (const LengthBucket& bucket : buckets.list) {
    arena = std::max(arena, bucket.plan.arena_bytes);
    data = std::max(data, bucket.plan.data_bytes);
  }
  return arena + data + device.overhead_bound(counts_of_all(buckets, longest));
}

Status check_together(const LengthBuckets& buckets, Bytes peak, Bytes budget) {
  if (budget == 0 || peak <= budget) return {};
  return fail(
      Error{ErrorCode::kDoesNotFit,
            fmt::format("the plans of {} lengths do not fit in {} together", buckets.list.size(), format_bytes(budget)),
            {fmt::format("with all of their kernels, the process would hold up to {}", format_bytes(peak))},
            {"fewer lengths in --buckets", fmt::format("--budget {}MiB", (peak + kMiB - 1) / kMiB)}});
}

Status plan_buckets(LengthBuckets& buckets, const SearchRequest& request, const Plan& longest,
                    const BucketRequest& request_of) {
  const std::vector<PersistentSlot> kept = kept_of(longest);
  buckets.list[0].plan = longest;
  for (size_t i = 1; i < buckets.list.size(); ++i) {
    LengthBucket& bucket = buckets.list[i];
    if (bucket.samples == 0) continue;
    PLIMSOLL_ASSIGN(SearchRequest wanted, request_of(*bucket.model, bucket.samples));
    wanted.device = request.device;
    wanted.budget = request.budget;
    wanted.arena = kept;
    wanted.find_least = false;
    PLIMSOLL_ASSIGN(SearchResult found, search(wanted));
    if (!found.fits) return fail(does_not_fit(wanted, found));
    bucket.plan = std::move(found.plan);
  }
  return {};
}

}  // namespace plimsoll::engine
