#include "model/traced_loss.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "model/layer.h"
#include "model/model_layer.h"

namespace plimsoll::engine {
namespace {

// The calls of random numbers are counted from here, apart from those of the model's layers.
constexpr int64_t kFirstCall = int64_t{1} << 23;

}  // namespace

std::optional<Loss> read_traced_loss(Config& c) {
  auto traced = std::make_shared<TracedLoss>();
  const Json none = Json::object();
  const Json* model = c.value("model");
  std::vector<int64_t> dims;
  const Json* target = c.value("target");
  bool good = target && target->is_array();
  for (size_t i = 0; good && i < target->size(); ++i) {
    const auto n = as_integer((*target)[i]);
    good = n && *n > 0;
    dims.push_back(n.value_or(1));
  }
  const auto shape = checked_shape(std::move(dims), c.where());
  if (!good || !shape) {
    c.issues().reject(fmt::format("{}: 'target' must be a list of positive sizes", c.where()));
    return std::nullopt;
  }
  traced->target = *shape;
  traced->integers = c.flag("integers", false);
  traced->labels = c.flag("labels", false);
  auto layer = read_model_layer(model ? *model : none, Precision{}, c.where(), c.issues(), 2);
  if (!layer) return std::nullopt;
  traced->layer = std::move(layer->layer);
  Loss loss;
  loss.kind = traced_loss_class();
  loss.axes = std::vector<int64_t>{-1};
  loss.traced = std::move(traced);
  return loss;
}

std::optional<Shape> traced_rows(const Loss& loss, const Shape& sample) {
  Issues issues;
  const auto shape = loss.traced->layer.shape(std::array{loss.traced->target, sample}, issues);
  if (!shape || !issues.unsupported.empty() || issues.bad || !shape->weights.empty()) return std::nullopt;
  return shape->output();
}

Expression traced_loss_rows(const Loss& loss, const Expression& prediction, const Expression& target) {
  GraphBuilder& b = prediction.builder();
  const DType dtype = prediction.type().dtype;
  const int64_t batch = prediction.shape()[0];
  const Expression y =
      target.cast(loss.traced->integers ? DType::kInt32 : dtype).reshaped(with_batch(batch, loss.traced->target).dims);
  const std::array inputs{y.id(), prediction.id()};
  const std::array masks{kNone, kNone};
  std::vector<int64_t> dims = prediction.shape().dims;
  dims.erase(dims.begin());
  Issues seen;  // they were listed when the loss was checked
  const auto shape = loss.traced->layer.shape(std::array{loss.traced->target, Shape(std::move(dims))}, seen);
  assert(shape);
  std::map<ValueId, ValueId> statistics;
  const BuildCall call{b, batch, dtype, true, true, kFirstCall, inputs, masks, {}, *shape, statistics, dtype};
  const Expression made(b, loss.traced->layer.build(call).outputs[0]);
  return made.cast(dtype).reshaped({made.shape().elements()});
}

}  // namespace plimsoll::engine
