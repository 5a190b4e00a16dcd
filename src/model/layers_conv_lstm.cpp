// ConvLSTM1D, ConvLSTM2D, ConvLSTM3D: an LSTM whose products are convolutions. Its steps become nodes of their own, so
// that all kernels of convolutions serve them; the convolution of the input is one for all steps.
#include <fmt/format.h>

#include <array>

#include "model/activations.h"
#include "model/geometry.h"
#include "model/recurrent.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostSteps = 128;  // every step adds some forty nodes to a training graph

struct ConvCell {
  size_t rank = 2;
  Geometry input, state;
  int64_t filters = 1;
  bool use_bias = true, unit_forget_bias = true;
  Activation activation, recurrent_activation;
  WeightConfig kernel, recurrent_kernel, bias;
  bool return_sequences = false, return_state = false, go_backwards = false, zero_output_for_mask = false;
};

ConvCell read_conv_cell(Config& c, size_t rank) {
  ConvCell cell;
  cell.rank = rank;
  cell.input.kernel = c.sizes("kernel_size", rank, 1);
  cell.input.strides = c.sizes("strides", rank, 1, Sizes(rank, 1));
  cell.input.dilations = c.sizes("dilation_rate", rank, 1, Sizes(rank, 1));
  const bool same = c.choice("padding", {"valid", "same"}, "valid") == "same";
  cell.input.padding = same ? WindowPadding::kSame : WindowPadding::kValid;
  cell.state = {cell.input.kernel, Sizes(rank, 1), Sizes(rank, 1), WindowPadding::kSame};
  cell.filters = c.integer("filters", 1, kMostElements);
  cell.use_bias = c.flag("use_bias", true);
  cell.unit_forget_bias = c.flag("unit_forget_bias", true);
  const bool has_activation = c.value("activation") != nullptr || c.is_null("activation");
  cell.activation = has_activation ? read_activation(c, "activation") : *named_activation("tanh");
  const bool has_recurrent = c.value("recurrent_activation") != nullptr || c.is_null("recurrent_activation");
  cell.recurrent_activation = has_recurrent ? read_activation(c, "recurrent_activation") : *named_activation("sigmoid");
  cell.kernel = read_weight(c, "kernel", "glorot_uniform");
  cell.recurrent_kernel = read_weight(c, "recurrent", "orthogonal");
  cell.bias = read_weight(c, "bias", "zeros");
  cell.return_sequences = c.flag("return_sequences", false);
  cell.return_state = c.flag("return_state", false);
  cell.go_backwards = c.flag("go_backwards", false);
  cell.zero_output_for_mask = c.flag("zero_output_for_mask", false);
  c.only("stateful", {false});
  c.only("dropout", {0.0});
  c.only("recurrent_dropout", {0.0});
  c.only("data_format", {"channels_last"});
  c.ignore({"seed", "unroll", "rank"});
  return cell;
}

Status add_weights(const ConvCell& cell, int64_t channels, const std::string& where, LayerShape& shape) {
  size_t own = 0;
  const auto add = [&](const char* name, const WeightConfig& config, Shape of) {
    WeightSpec spec = config.spec(std::string("conv_lstm_cell/") + name, std::move(of));
    spec.path = "cell/" + vars_path(own++);
    shape.weights.push_back(std::move(spec));
  };
  PLIMSOLL_ASSIGN(const Shape wide, checked_shape({4, cell.filters}, where));
  PLIMSOLL_ASSIGN(Shape kernel, kernel_shape(cell.input, channels, wide.elements(), where + ": kernel"));
  PLIMSOLL_ASSIGN(Shape recurrent,
                  kernel_shape(cell.state, cell.filters, wide.elements(), where + ": recurrent_kernel"));
  add("kernel", cell.kernel, std::move(kernel));
  add("recurrent_kernel", cell.recurrent_kernel, std::move(recurrent));
  if (cell.use_bias) add("bias", cell.bias, Shape{wide.elements()});
  if (cell.use_bias && cell.unit_forget_bias)
    shape.weights.back().initializer = {{"class_name", "UnitForgetBias"},
                                        {"config", {{"initializer", cell.bias.initializer}}}};
  return {};
}

// The output, then the two states. The windows are those of the input, then of the state.
Result<LayerShape> shapes_of(const ConvCell& cell, const Shape& in, const std::string& where, Issues& issues) {
  PLIMSOLL_TRY(need_rank(in, cell.rank + 2, where));
  if (in[0] > kMostSteps) issues.unknown(fmt::format("{}: {} steps (the most are {})", where, in[0], kMostSteps));
  const Shape step(std::vector<int64_t>(in.dims.begin() + 1, in.dims.end()));
  PLIMSOLL_ASSIGN(std::vector<KernelWindow> windows, place_windows(cell.input, step, where));
  PLIMSOLL_ASSIGN(const Shape state, image_shape(windows, cell.filters, where));
  PLIMSOLL_ASSIGN(const std::vector<KernelWindow> inner, place_windows(cell.state, state, where));
  windows.insert(windows.end(), inner.begin(), inner.end());
  std::vector<int64_t> dims = state.dims;
  if (cell.return_sequences) dims.insert(dims.begin(), in[0]);
  PLIMSOLL_ASSIGN(LayerShape shape, checked_shape(std::move(dims), where));
  shape.outputs.insert(shape.outputs.end(), {state, state});
  shape.windows = std::move(windows);
  PLIMSOLL_TRY(add_weights(cell, in.back(), where, shape));
  return shape;
}

Attrs attributes(const Geometry& g, std::vector<KernelWindow> windows) {
  return {{"strides", op_sizes(g.strides)},
          {"pads", op_pads(windows)},
          {"dilations", op_sizes(g.dilations)},
          {"groups", int64_t{1}}};
}

// The loop over the steps of one call.
class ConvLoop {
 public:
  ConvLoop(const BuildCall& call, const ConvCell& cell, ValueId x, ValueId mask)
      : call_(call), cell_(cell), steps_(call.shape(x)[1]), mask_(mask) {
    const auto& windows = call.computed.windows;
    const auto half = windows.begin() + static_cast<std::ptrdiff_t>(cell.rank);
    const Attrs attrs = attributes(cell.input, {windows.begin(), half});
    state_attrs_ = attributes(cell.state, {half, windows.end()});
    for (auto window = windows.begin(); window != half; ++window) space_.push_back(window->output);
    std::vector<int64_t> dims = call.shape(x).dims;
    dims.erase(dims.begin());
    dims[0] = call.batch * steps_;
    const ValueId images = as_image(call, call.add("reshape", {x}, {{"shape", dims}}), cell.rank);
    const ValueId kernel = as_kernel(call, call.weights[0], cell.rank);
    sums_ = call.add(cell_op(), {images, kernel}, attrs);
    if (cell.use_bias) sums_ = call.add("bias_add", {sums_, call.weights[2]});
    sums_ = reshaped(sums_, {call.batch, steps_}, 4 * cell.filters);
    kernel_ = as_kernel(call, call.weights[1], cell.rank);
  }

  // Returns the output and the states. `states` may be empty: zeros.
  std::vector<ValueId> run(const std::vector<ValueId>& states) {
    if (!states.empty()) h_ = states[0], c_ = states[1];
    for (int64_t s = 0; s < steps_; ++s) step(cell_.go_backwards ? steps_ - 1 - s : s);
    if (!cell_.return_sequences) return {outputs_.back(), h_, c_};
    std::vector<ValueId> parts;
    for (const ValueId output : outputs_) parts.push_back(reshaped(output, {call_.batch, 1}, cell_.filters));
    return {parts.size() == 1 ? parts[0] : call_.add("concat", parts, {{"axis", int64_t{1}}}), h_, c_};
  }

 private:
  std::string cell_op() const { return op_name("conv", cell_.rank); }

  ValueId reshaped(ValueId x, std::vector<int64_t> first, int64_t channels) const {
    first.insert(first.end(), space_.begin(), space_.end());
    first.push_back(channels);
    return call_.add("reshape", {x}, {{"shape", first}});
  }

  ValueId part(ValueId x, int64_t axis, int64_t begin, int64_t size) const {
    return call_.add("slice", {x}, {{"axis", axis}, {"begin", begin}, {"size", size}});
  }

  ValueId gate(ValueId sums, int64_t index) const {
    const int64_t axis = static_cast<int64_t>(call_.shape(sums).rank()) - 1;
    const ValueId own = part(sums, axis, index * cell_.filters, cell_.filters);
    return (index == 2 ? cell_.activation : cell_.recurrent_activation)(call_, own);
  }

  void step(int64_t t) {
    ValueId sums = reshaped(part(sums_, 1, t, 1), {call_.batch}, 4 * cell_.filters);
    if (h_ != kNone) {
      const ValueId image = as_image(call_, h_, cell_.rank);
      const ValueId from_state = call_.add(cell_op(), {image, kernel_}, state_attrs_);
      sums = call_.add("add", {sums, reshaped(from_state, {call_.batch}, 4 * cell_.filters)});
    }
    ValueId c = call_.add("multiply", {gate(sums, 0), gate(sums, 2)});
    if (c_ != kNone) c = call_.add("add", {call_.add("multiply", {gate(sums, 1), c_}), c});
    const ValueId h = call_.add("multiply", {gate(sums, 3), cell_.activation(call_, c)});
    if (mask_ == kNone) {
      h_ = h;
      c_ = c;
      outputs_.push_back(h);
      return;
    }
    const ValueId kept = mask_of(t, h);
    const ValueId before = outputs_.empty() ? kNone : last_;
    last_ = selected(kept, h, before);
    outputs_.push_back(cell_.zero_output_for_mask ? call_.add("multiply", {kept, h}) : last_);
    h_ = selected(kept, h, h_);
    c_ = selected(kept, c, c_);
  }

  // The mask of one step, in the shape of the state.
  ValueId mask_of(int64_t t, ValueId like) const {
    const Shape shape = call_.shape(like);
    std::vector<int64_t> dims(shape.rank(), 1);
    dims[0] = call_.batch;
    const ValueId column = call_.add("reshape", {part(mask_, 1, t, 1)}, {{"shape", dims}});
    return call_.add("broadcast", {column}, {{"shape", shape.dims}});
  }

  // `value` where `kept` is 1, else `other`, or 0 if there is none.
  ValueId selected(ValueId kept, ValueId value, ValueId other) const {
    if (other == kNone) return call_.add("multiply", {kept, value});
    return call_.add("select", {kept, value, other});
  }

  const BuildCall& call_;
  const ConvCell& cell_;
  const int64_t steps_;
  const ValueId mask_;
  Attrs state_attrs_;
  std::vector<int64_t> space_;
  ValueId sums_ = kNone, kernel_ = kNone, h_ = kNone, c_ = kNone, last_ = kNone;
  std::vector<ValueId> outputs_;
};

Layer conv_lstm(Config& c, size_t rank) {
  const std::string where = c.where();
  const ConvCell cell = read_conv_cell(c, rank);
  const LoopTensors tensors = read_loop_tensors(c, 2);
  Layer layer;
  layer.least_inputs = layer.most_inputs = tensors.count();
  layer.outputs = cell.return_state ? 3 : 1;
  // The mask of a tensor [N,T,...,C] has one number per pixel; only an argument can have one per step.
  layer.masking = Masking::kChanges;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(LayerShape shape, shapes_of(cell, in[tensors.x], where, issues));
    PLIMSOLL_TRY(check_loop_tensors(tensors, in, std::span(shape.outputs).subspan(1), where, issues));
    if (!cell.return_state) shape.outputs.resize(1);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    ValueId mask = mask_of_loop(call, tensors);
    const ValueId x = call.inputs[tensors.x];
    const DType dtype = call.b.graph().type(x).dtype;
    if (mask != kNone && call.b.graph().type(mask).dtype != dtype)
      mask = call.add("cast", {mask}, {{"dtype", std::string(name_of(dtype))}});
    std::vector<ValueId> states;
    for (const size_t state : tensors.states) states.push_back(call.inputs[state]);
    std::vector<ValueId> made = ConvLoop(call, cell, x, mask).run(states);
    made.resize(cell.return_state ? 3 : 1);
    return LayerValues(std::move(made));
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"ConvLSTM1D", [](Config& c) { return conv_lstm(c, 1); }},
    LayerClass{"ConvLSTM2D", [](Config& c) { return conv_lstm(c, 2); }},
    LayerClass{"ConvLSTM3D", [](Config& c) { return conv_lstm(c, 3); }},
};

}  // namespace

std::span<const LayerClass> conv_lstm_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
