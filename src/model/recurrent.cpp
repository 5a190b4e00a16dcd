#include "model/recurrent.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/arguments.h"
#include "model/names.h"
#include "model/values.h"
#include "ops/build.h"
#include "ops/recurrent.h"

namespace plimsoll::engine {
namespace {

// Returns an activation that `recurrent` knows, listing any other.
std::string read_cell_activation(Config& c, const std::string& key, const std::string& otherwise) {
  if (c.is_null(key)) return "linear";
  const Json* value = c.value(key);
  if (value == nullptr) return otherwise;
  const KerasObject object = keras_object(*value);
  if (!object.custom && (value->is_string() || object.function) && cell_function(object.name)) return object.name;
  const std::string name = object.name.empty() ? shown(*value) : object.name;
  if (!object.custom && !object.name.empty())
    c.issues().unknown(
        fmt::format("{} with {}={}: a recurrent layer takes only functions whose slope follows from "
                    "their value, which is all that it keeps",
                    c.where(), key, name));
  else
    c.issues().unknown(fmt::format("{}: {}={}", c.where(), key, name));
  if (object.custom) c.issues().custom_code();
  return otherwise;
}

double read_rate(Config& c, const char* key, bool whole) {
  const double rate = std::clamp(c.real(key, 0), 0.0, 1.0);  // as Keras does
  if (rate < 1) return rate;
  if (whole) c.issues().unknown(fmt::format("{}: {}=1", c.where(), key));
  return 0;  // Keras's LSTM and GRU drop nothing then
}

// `kind` is the class without "Cell".
RecurrentCell read_cell(Config& c, std::string_view kind) {
  RecurrentCell cell;
  const bool simple = kind == "SimpleRNN", lstm = kind == "LSTM";
  cell.kind = simple ? "simple" : lstm ? "lstm" : c.flag("reset_after", true) ? "gru" : "gru_reset_before";
  cell.units = c.integer("units", 1, kMostElements);
  cell.use_bias = c.flag("use_bias", true);
  cell.activation = read_cell_activation(c, "activation", "tanh");
  if (!simple) cell.recurrent_activation = read_cell_activation(c, "recurrent_activation", "sigmoid");
  cell.kernel = read_weight(c, "kernel", "glorot_uniform");
  cell.recurrent_kernel = read_weight(c, "recurrent", "orthogonal");
  cell.bias = read_weight(c, "bias", "zeros");
  if (lstm) cell.unit_forget_bias = c.flag("unit_forget_bias", true);
  cell.dropout = read_rate(c, "dropout", simple);
  cell.recurrent_dropout = read_rate(c, "recurrent_dropout", simple);
  // The random numbers come from the run's seed. The others choose how Keras computes the same numbers.
  c.ignore({"seed", "implementation", "use_cudnn"});
  return cell;
}

bool is_plain_class(std::string_view name) {
  return name == "SimpleRNN" || name == "LSTM" || name == "GRU";
}

std::string cell_name(std::string_view kind) {
  return kind == "SimpleRNN" ? "simple_rnn_cell" : kind == "LSTM" ? "lstm_cell" : "gru_cell";
}

// Reads a cell object of an RNN layer, or all cells of StackedRNNCells.
void read_cells(Config& c, const Json& value, const std::string& path, RecurrentLoop& loop) {
  const KerasObject object = keras_object(value);
  const std::string where = fmt::format("{}, cell ({})", c.where(), object.name);
  Config inner(object.config, where, c.issues());
  if (!object.custom && object.name == "StackedRNNCells" && loop.cells.empty() && path.ends_with("cell")) {
    const Json* cells = inner.value("cells");
    if (cells == nullptr || !cells->is_array() || cells->empty())
      return c.issues().reject(fmt::format("{}: it must have a list of cells", where));
    std::map<std::string, int> seen;
    for (const Json& one : *cells) {
      const std::string class_name = keras_object(one).name;
      const std::string base =
          class_name.ends_with("Cell") ? cell_name(class_name.substr(0, class_name.size() - 4)) : "";
      const int index = seen[base]++;
      read_cells(inner, one, fmt::format("{}/cells/{}{}", path, base, index > 0 ? fmt::format("_{}", index) : ""),
                 loop);
    }
    inner.ignore({"name", "trainable"});
    read_policy(inner);
    return inner.finish();
  }
  const std::string kind = object.name.ends_with("Cell") ? object.name.substr(0, object.name.size() - 4) : "";
  if (object.custom || !is_plain_class(kind)) {
    c.issues().unknown(fmt::format("{}: cell={}", c.where(), object.name.empty() ? shown(value) : object.name));
    if (object.custom) c.issues().custom_code();
    return;
  }
  RecurrentCell cell = read_cell(inner, kind);
  cell.name = inner.text("name", cell_name(kind));
  cell.path = path;
  cell.trainable = inner.flag("trainable", true);
  read_policy(inner);
  inner.finish();
  loop.cells.push_back(std::move(cell));
}

}  // namespace

std::optional<RecurrentLoop> read_recurrent_loop(Config& c, std::string_view class_name, const std::string& path) {
  if (!is_plain_class(class_name) && class_name != "RNN") return std::nullopt;
  RecurrentLoop loop;
  loop.return_sequences = c.flag("return_sequences", false);
  loop.return_state = c.flag("return_state", false);
  loop.go_backwards = c.flag("go_backwards", false);
  loop.zero_output_for_mask = c.flag("zero_output_for_mask", false);
  c.only("stateful", {false});
  c.only("time_major", {false});
  c.ignore({"unroll"});
  if (is_plain_class(class_name)) {
    loop.cells.push_back(read_cell(c, class_name));
    loop.cells[0].name = cell_name(class_name);
    loop.cells[0].path = path + "cell";
  } else if (const Json* cell = c.value("cell")) {
    read_cells(c, *cell, path + "cell", loop);
  } else {
    c.issues().reject(fmt::format("{}: it must have a cell", c.where()));
  }
  return loop;
}

size_t RecurrentLoop::states() const {
  size_t count = 0;
  for (const RecurrentCell& cell : cells) count += cell.states();
  return count;
}

bool RecurrentLoop::draws() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const RecurrentCell& cell) { return cell.dropout > 0 || cell.recurrent_dropout > 0; });
}

Status RecurrentLoop::add_weights(int64_t size, const std::string& where, std::vector<WeightSpec>& weights) const {
  for (const RecurrentCell& cell : cells) {
    size_t own = 0;
    const auto add = [&](const char* name, const WeightConfig& config, Shape shape) {
      WeightSpec spec = config.spec(cell.name + "/" + name, std::move(shape));
      spec.path = cell.path + "/" + vars_path(own++);
      spec.frozen = !trainable || !cell.trainable;
      weights.push_back(std::move(spec));
    };
    PLIMSOLL_ASSIGN(const Shape wide, checked_shape({cell.gates(), cell.units}, where));
    PLIMSOLL_ASSIGN(Shape kernel, checked_shape({size, wide.elements()}, where + ": kernel"));
    PLIMSOLL_ASSIGN(Shape recurrent, checked_shape({cell.units, wide.elements()}, where + ": recurrent_kernel"));
    add("kernel", cell.kernel, std::move(kernel));
    add("recurrent_kernel", cell.recurrent_kernel, std::move(recurrent));
    if (cell.use_bias) add("bias", cell.bias, cell.kind == "gru" ? Shape{2, wide.elements()} : Shape{wide.elements()});
    if (cell.use_bias && cell.unit_forget_bias)
      weights.back().initializer = {{"class_name", "UnitForgetBias"},
                                    {"config", {{"initializer", cell.bias.initializer}}}};
    size = cell.units;
  }
  return {};
}

Result<std::vector<Shape>> RecurrentLoop::outputs(const Shape& in, const std::string& where) const {
  PLIMSOLL_TRY(need_rank(in, 2, where));
  if (in.elements() < 1) return fail(ErrorCode::kBadGeometry, where + ": needs at least one step and one feature");
  std::vector<int64_t> dims{cells.back().units};
  if (return_sequences) dims.insert(dims.begin(), in[0]);
  PLIMSOLL_ASSIGN(Shape output, checked_shape(std::move(dims), where));
  std::vector<Shape> shapes{std::move(output)};
  for (const RecurrentCell& cell : cells)
    for (size_t i = 0; i < cell.states(); ++i) shapes.push_back(Shape{cell.units});
  return shapes;
}

namespace {

ValueId zeros(const BuildCall& call, const Shape& shape, DType dtype) {
  return call.add("fill", {}, {{"shape", shape.dims}, {"value", 0.0}, {"dtype", std::string(name_of(dtype))}});
}

// 0 or 1 / (1 - rate), drawn once per sample for all steps.
ValueId dropout_vectors(const BuildCall& call, int64_t size, double rate, int64_t stream) {
  const DType dtype = is_half(call.precision) ? DType::kFloat32 : call.precision;
  const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
  const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
  const ValueId u = call.add("random_uniform", {rng, first},
                             {{"shape", std::vector<int64_t>{call.batch, size}},
                              {"dtype", std::string(name_of(dtype))},
                              {"call", call.call},
                              {"stream", stream}});
  ValueId keep = call.add("less_equal", {constant_like(call.b, u, static_cast<double>(static_cast<float>(rate))), u});
  if (dtype != call.precision) keep = call.add("cast", {keep}, {{"dtype", std::string(name_of(call.precision))}});
  return call.add("affine", {keep}, {{"scale", 1 / (1 - rate)}, {"offset", 0.0}});
}

Attrs cell_attrs(const RecurrentCell& cell) {
  Attrs attrs{{"cell", cell.kind}, {"activation", cell.activation}, {"bias", cell.use_bias}};
  if (cell.kind != "simple") attrs.set("recurrent_activation", cell.recurrent_activation);
  return attrs;
}

}  // namespace

std::vector<ValueId> build_loop(const BuildCall& call, const RecurrentLoop& loop, const LoopCall& arguments) {
  const DType dtype = call.b.graph().type(arguments.x).dtype;
  ValueId x = arguments.x, mask = arguments.mask;
  if (mask != kNone && call.b.graph().type(mask).dtype != dtype)
    mask = call.add("cast", {mask}, {{"dtype", std::string(name_of(dtype))}});
  std::vector<ValueId> states;
  size_t weight = 0, state = 0;
  int64_t stream = arguments.stream;
  for (size_t i = 0; i < loop.cells.size(); ++i) {
    const RecurrentCell& cell = loop.cells[i];
    const bool last = i + 1 == loop.cells.size();
    Attrs attrs = cell_attrs(cell);
    std::vector<ValueId> inputs{x, arguments.weights[weight], arguments.weights[weight + 1]};
    for (size_t s = 0; s < cell.states(); ++s, ++state)
      inputs.push_back(arguments.states.empty() ? zeros(call, Shape{call.batch, cell.units}, dtype)
                                                : arguments.states[state]);
    if (cell.use_bias) inputs.push_back(arguments.weights[weight + 2]);
    weight += cell.weights();
    if (mask != kNone) inputs.push_back(mask);
    // Keras draws masks per gate if the cell has recurrent dropout.
    const int64_t vectors = cell.recurrent_dropout > 0 ? cell.gates() : 1;
    const auto dropped = [&](const char* name, double rate, int64_t size) {
      const int64_t own = stream++;
      if (!call.training || rate == 0) return;
      inputs.push_back(dropout_vectors(call, vectors * size, rate, own));
      attrs.set(name, vectors);
    };
    dropped("x_masks", cell.dropout, call.shape(x).back());
    dropped("h_masks", cell.recurrent_dropout, cell.units);
    if (mask != kNone) attrs.set("mask", true);
    attrs.set("sequences", !last || loop.return_sequences);
    // Between the cells of a loop that goes backwards, the steps stay in the input's order.
    attrs.set("reverse", loop.go_backwards);
    attrs.set("keeps_order", loop.go_backwards && (!last || arguments.keeps_order));
    attrs.set("zeroes_masked", last && loop.zero_output_for_mask);
    attrs.set("saves", call.training);
    const std::vector<ValueId> made = call.b.add("recurrent", std::move(inputs), std::move(attrs));
    if (made.empty()) return {};
    x = made[0];
    for (size_t s = 0; s < cell.states(); ++s) states.push_back(made[1 + s]);
  }
  states.insert(states.begin(), x);
  return states;
}

LoopTensors read_loop_tensors(Config& c, size_t states) {
  LoopTensors tensors;
  const CallArguments& call = c.call();
  if (call.tensors.empty()) return tensors;  // in a Sequential model, or inside a wrapper
  Arguments arguments(call, c.where(), c.issues());
  const Json* x = arguments.value("sequences", 0);
  if (x == nullptr) x = arguments.value("inputs", 0);
  const auto refuse = [&](const char* name, const Json& value) {
    c.issues().unknown(fmt::format("{}: called with {}={}", c.where(), name, arguments.shown(value)));
  };
  if (const auto at = x != nullptr ? arguments.tensor(*x) : std::nullopt)
    tensors.x = *at;
  else
    c.issues().unknown(fmt::format("{}: called without one tensor as its sequences", c.where()));
  if (const Json* initial = arguments.value("initial_state", 1)) {
    std::vector<const Json*> flat{initial};
    for (size_t i = 0; i < flat.size();) {  // states of stacked cells are lists of lists
      if (!flat[i]->is_array()) {
        ++i;
        continue;
      }
      std::vector<const Json*> inner;
      for (const Json& one : *flat[i]) inner.push_back(&one);
      flat.erase(flat.begin() + static_cast<long>(i));
      flat.insert(flat.begin() + static_cast<long>(i), inner.begin(), inner.end());
    }
    for (const Json* one : flat)
      if (const auto at = arguments.tensor(*one)) tensors.states.push_back(*at);
    if (tensors.states.size() != states || flat.size() != states) {
      refuse("initial_state", *initial);
      tensors.states.clear();
    }
  }
  if (const Json* mask = arguments.value("mask", 2)) {
    tensors.mask = arguments.tensor(*mask);
    if (!tensors.mask) refuse("mask", *mask);
  }
  arguments.finish();
  return tensors;
}

Status check_loop_tensors(const LoopTensors& tensors, std::span<const Shape> in, std::span<const Shape> states,
                          const std::string& where, Issues& issues) {
  for (size_t i = 0; i < tensors.states.size(); ++i)
    if (in[tensors.states[i]] != states[i])
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: state {} must be [{}], got [{}]", where, i,
                                                       to_text(states[i]), to_text(in[tensors.states[i]])));
  if (tensors.mask && in[*tensors.mask] != Shape{in[tensors.x][0]})
    issues.unknown(fmt::format("{}: a mask [{}] that is not one number per step", where, to_text(in[*tensors.mask])));
  return {};
}

ValueId mask_of_loop(const BuildCall& call, const LoopTensors& tensors) {
  return tensors.mask ? call.inputs[*tensors.mask] : call.masks[tensors.x];
}

}  // namespace plimsoll::engine
