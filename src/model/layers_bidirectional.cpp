// Bidirectional: two recurrent layers over the same sequence, one of them backwards.
#include <fmt/format.h>

#include <array>

#include "model/recurrent.h"

namespace plimsoll::engine {
namespace {

// Reads the recurrent layer under `key`; its weights lie in that group of the file. Keras computes with the wrapper's
// policy.
std::optional<RecurrentLoop> read_direction(Config& c, const std::string& key) {
  const Json* value = c.value(key);
  const KerasObject object = value ? keras_object(*value) : KerasObject{};
  Config inner(object.config, fmt::format("{}, {} ({})", c.where(), key, object.name), c.issues());
  std::optional<RecurrentLoop> loop;
  if (!object.custom) loop = read_recurrent_loop(inner, object.name, key + "/");
  if (!loop) {
    c.issues().unknown(fmt::format("{}: {}={}", c.where(), key,
                                   object.name.empty() ? (value ? shown(*value) : "nothing") : object.name));
    if (object.custom) c.issues().custom_code();
    return std::nullopt;
  }
  const std::string name = inner.text("name", key);
  loop->trainable = inner.flag("trainable", true);
  for (RecurrentCell& cell : loop->cells) cell.name = name + "/" + cell.name;
  read_policy(inner);
  if (read_activity(inner)) c.issues().unknown(fmt::format("{}: activity_regularizer", inner.where()));
  inner.finish();
  if (loop->cells.empty()) return std::nullopt;
  return loop;
}

struct Directions {
  RecurrentLoop forward, backward;
  std::string merge;  // "": the outputs stay apart

  size_t own_outputs() const { return merge.empty() ? 2 : 1; }
  size_t states() const { return forward.states() + backward.states(); }
  size_t outputs() const { return own_outputs() + (forward.return_state ? states() : 0); }
};

std::optional<Directions> read_directions(Config& c) {
  Directions both;
  both.merge = c.is_null("merge_mode") ? "" : c.choice("merge_mode", {"concat", "sum", "ave", "mul"}, "concat");
  auto forward = read_direction(c, "layer");
  if (!forward) return std::nullopt;
  for (RecurrentCell& cell : forward->cells)
    cell.path = "forward_layer" + cell.path.substr(std::string("layer").size());
  std::optional<RecurrentLoop> backward;
  if (c.value("backward_layer") != nullptr) {
    backward = read_direction(c, "backward_layer");
    if (!backward) return std::nullopt;
  } else {  // a copy in the other direction
    backward = forward;
    backward->go_backwards = !forward->go_backwards;
    for (RecurrentCell& cell : backward->cells) {
      cell.path = "backward_layer" + cell.path.substr(std::string("forward_layer").size());
      cell.name = "backward_" + cell.name;
    }
  }
  if (forward->return_sequences != backward->return_sequences || forward->return_state != backward->return_state ||
      forward->go_backwards == backward->go_backwards)
    c.issues().reject(
        fmt::format("{}: its two layers must agree in return_sequences and return_state, and differ in "
                    "go_backwards",
                    c.where()));
  both.forward = std::move(*forward);
  both.backward = std::move(*backward);
  return both;
}

Result<std::vector<Shape>> output_shapes(const Directions& both, const Shape& in, const std::string& where) {
  PLIMSOLL_ASSIGN(std::vector<Shape> made, both.forward.outputs(in, where));
  PLIMSOLL_ASSIGN(const std::vector<Shape> other, both.backward.outputs(in, where));
  if (both.merge != "concat" && made[0] != other[0])
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: its layers return [{}] and [{}], which cannot be merged",
                                                     where, to_text(made[0]), to_text(other[0])));
  if (both.merge == "concat") {
    std::vector<int64_t> dims = made[0].dims;
    dims.back() += other[0].back();
    PLIMSOLL_ASSIGN(made[0], checked_shape(std::move(dims), where));
  }
  if (both.merge.empty()) made.insert(made.begin() + 1, other[0]);
  made.insert(made.end(), other.begin() + 1, other.end());
  return made;
}

ValueId merged(const BuildCall& call, const std::string& mode, ValueId a, ValueId b) {
  if (mode == "concat") return call.add("concat", {a, b}, {{"axis", static_cast<int64_t>(call.shape(a).rank()) - 1}});
  if (mode == "mul") return call.add("multiply", {a, b});
  const ValueId sum = call.add("add", {a, b});
  return mode == "sum" ? sum : call.add("affine", {sum}, {{"scale", 0.5}, {"offset", 0.0}});
}

// The steps of [N,T,U] in the other order.
ValueId reversed(const BuildCall& call, ValueId x) {
  const Shape shape = call.shape(x);
  return call.add("strided_slice", {x},
                  {{"begin", std::vector<int64_t>{0, shape[1] - 1, 0}},
                   {"size", shape.dims},
                   {"strides", std::vector<int64_t>{1, -1, 1}}});
}

LayerValues build_directions(const BuildCall& call, const Directions& both, const LoopTensors& tensors) {
  size_t own = 0;
  for (const RecurrentCell& cell : both.forward.cells) own += cell.weights();
  const ValueId x = call.inputs[tensors.x], mask = mask_of_loop(call, tensors);
  LoopCall forward{x, {}, mask, call.weights.first(own)}, backward{x, {}, mask, call.weights.subspan(own), true};
  backward.stream = 2 * static_cast<int64_t>(both.forward.cells.size());
  for (size_t i = 0; i < tensors.states.size(); ++i)
    (i < both.forward.states() ? forward : backward).states.push_back(call.inputs[tensors.states[i]]);
  std::vector<ValueId> made = build_loop(call, both.forward, forward);
  std::vector<ValueId> other = build_loop(call, both.backward, backward);
  if (made.empty() || other.empty()) return LayerValues(std::vector<ValueId>(both.outputs(), kNone));
  if (both.backward.return_sequences && !both.backward.go_backwards) other[0] = reversed(call, other[0]);
  if (both.merge.empty())
    made.insert(made.begin() + 1, other[0]);
  else
    made[0] = merged(call, both.merge, made[0], other[0]);
  made.insert(made.end(), other.begin() + 1, other.end());
  made.resize(both.outputs());
  return LayerValues(std::move(made));
}

Layer bidirectional(Config& c) {
  const std::string where = c.where();
  const auto both = read_directions(c);
  Layer layer;
  if (!both) return layer;
  const LoopTensors tensors = read_loop_tensors(c, both->states());
  layer.least_inputs = layer.most_inputs = tensors.count();
  layer.outputs = both->outputs();
  layer.draws = both->forward.draws() || both->backward.draws();
  // Only the first output of a layer can have a mask, and Keras gives one to both.
  const bool two_masks = both->forward.return_sequences && both->merge.empty();
  layer.masking = two_masks ? Masking::kChanges : both->forward.return_sequences ? Masking::kPasses : Masking::kReads;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.outputs, output_shapes(*both, in[tensors.x], where));
    PLIMSOLL_TRY(check_loop_tensors(tensors, in, std::span(shape.outputs).subspan(both->own_outputs()), where, issues));
    for (const RecurrentLoop* loop : {&both->forward, &both->backward})
      PLIMSOLL_TRY(loop->add_weights(in[tensors.x].back(), where, shape.weights));
    shape.outputs.resize(both->outputs());
    return shape;
  };
  layer.build = [=](const BuildCall& call) { return build_directions(call, *both, tensors); };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Bidirectional", bidirectional},
};

}  // namespace

std::span<const LayerClass> bidirectional_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
