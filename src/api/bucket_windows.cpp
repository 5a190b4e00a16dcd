#include "api/bucket_windows.h"

#include <algorithm>
#include <cstring>

namespace plimsoll::engine {

BucketWindows::BucketWindows(Session& session, LengthBuckets& buckets, ColumnSource& source, const Settings& settings)
    : session_(session), buckets_(buckets), source_(source), settings_(settings) {
  cut_.batch = session.plan().batch;
  cut_.batch.effective = settings.window;
  const int64_t all = buckets.groups.windows();
  cut_.windows = settings.windows > 0 ? std::min(all, settings.windows) : all;
  cut_.samples = all * settings.window;  // positions: each window has room for a full one
}

Bytes BucketWindows::staging_bytes(const ColumnSource& source) {
  Bytes bytes = 0;
  for (const auto* types : {&source.input_types(), &source.target_types()})
    for (const TensorType& type : *types) bytes += align_up(type.bytes());
  return bytes;
}

Status BucketWindows::start(int64_t /*epochs*/, const CutPosition& /*from*/) {
  staged_.clear();
  sample_ = BatchBuffers();
  const auto stage = [&](const TensorType& type) -> void* {
    return staged_.emplace_back(static_cast<size_t>(type.bytes())).data();
  };
  staged_.reserve(source_.input_types().size() + source_.target_types().size());
  for (const TensorType& type : source_.input_types()) sample_.inputs.push_back(stage(type));
  for (const TensorType& type : source_.target_types()) sample_.targets.push_back(stage(type));
  if (!source_.has_weights()) return {};
  weights_.assign(source_.target_types().size(), 1);
  for (float& weight : weights_) sample_.weights.push_back(&weight);
  return {};
}

Result<std::optional<int64_t>> BucketWindows::next_window(int64_t epoch, int64_t window) {
  if (window >= cut_.windows) return std::nullopt;
  if (epoch != ordered_epoch_) buckets_.groups.order(epoch, settings_.shuffle, settings_.seed);
  ordered_epoch_ = epoch;
  window_ = window;
  place_ = buckets_.groups.place(window);
  PLIMSOLL_TRY(session_.use(buckets_.list[place_.group].in_session));
  return place_.count;
}

Status BucketWindows::read(const BatchRequest& request, const BatchBuffers& into) {
  const int64_t first = place_.first + request.first - window_ * settings_.window;
  for (int64_t i = 0; i < request.count; ++i)
    PLIMSOLL_TRY(read_sample(buckets_.groups.sample(place_.group, first + i) - source_.begin(), i, into));
  return {};
}

// Copies the first steps of a sample: as many as the plan in use has.
Status BucketWindows::read_sample(int64_t sample, int64_t at, const BatchBuffers& into) {
  PLIMSOLL_TRY(source_.read(0, sample, 1, sample_));
  const Model& model = session_.model();
  const auto copy = [&](void* to, const void* from, DType dtype, const Shape& shape) {
    const Bytes bytes = TensorType{dtype, shape}.bytes();
    if (to != nullptr) std::memcpy(static_cast<std::byte*>(to) + at * bytes, from, static_cast<size_t>(bytes));
  };
  for (size_t i = 0; i < into.inputs.size(); ++i)
    copy(into.inputs[i], sample_.inputs[i], source_.input_types()[i].dtype, model.inputs()[i].sample);
  size_t target = 0;
  for (const Port& port : model.outputs()) {
    if (!port.has_loss || target >= into.targets.size()) continue;
    copy(into.targets[target], sample_.targets[target], source_.target_types()[target].dtype, port.target);
    ++target;
  }
  for (size_t i = 0; i < into.weights.size(); ++i) into.weights[i][at] = weights_[i];
  return {};
}

}  // namespace plimsoll::engine
