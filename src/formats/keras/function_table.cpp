#include "formats/keras/function_table.h"

#include <cmath>
#include <functional>
#include <string_view>

#include "base/json.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;
using Named = std::map<std::string, Json>;

constexpr const char *kNumpy = "keras.src.ops.numpy", *kNN = "keras.src.ops.nn", *kMath = "keras.src.ops.math",
                     *kCore = "keras.src.ops.core", *kImage = "keras.src.ops.image", *kLayers = "keras.layers";

// An option of the configuration: its name in TensorFlow and in Keras, and its value if the call does not name it.
struct Option {
  const char *from, *to;
  Json otherwise;
};

struct Row {
  Target to;
  std::vector<const char*> arguments;  // named in TensorFlow, by position in Keras, after the first
  std::vector<Option> options;
};

// The arguments of a call, which are taken one by one: one that is left over has no counterpart.
class Taker {
 public:
  explicit Taker(Named& named) : named_(named) {}
  Json take(const char* key, Json otherwise) {
    const auto found = named_.find(key);
    if (found == named_.end()) return otherwise;
    Json value = std::move(found->second);
    named_.erase(found);
    return value;
  }
  // Accepts an argument that has this value, or is missing.
  void only(const char* key, const Json& value) {
    if (const auto found = named_.find(key); found != named_.end() && found->second == value) named_.erase(found);
  }

 private:
  Named& named_;
};

std::map<std::string, Row, std::less<>> make_table() {
  std::map<std::string, Row, std::less<>> table;
  const auto add = [&](const char* name, Row row) { table.emplace(name, std::move(row)); };
  for (const auto& [name, class_name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"abs", "Absolute"},
                                                                  {"negative", "Negative"},
                                                                  {"exp", "Exp"},
                                                                  {"log", "Log"},
                                                                  {"sqrt", "Sqrt"},
                                                                  {"square", "Square"},
                                                                  {"sin", "Sin"},
                                                                  {"cos", "Cos"},
                                                                  {"tan", "Tan"},
                                                                  {"sinh", "Sinh"},
                                                                  {"cosh", "Cosh"},
                                                                  {"asin", "Arcsin"},
                                                                  {"acos", "Arccos"},
                                                                  {"atan", "Arctan"},
                                                                  {"tanh", "Tanh"},
                                                                  {"sign", "Sign"},
                                                                  {"floor", "Floor"},
                                                                  {"ceil", "Ceil"},
                                                                  {"log1p", "Log1p"},
                                                                  {"expm1", "Expm1"},
                                                                  {"reciprocal", "Reciprocal"},
                                                                  {"logical_not", "LogicalNot"},
                                                                  {"is_nan", "Isnan"}})
    table.emplace("math." + std::string(name), Row{{kNumpy, class_name}, {}, {}});
  add("math.round", {{kNumpy, "Round"}, {}, {{"", "decimals", 0}}});
  add("math.rsqrt", {{kMath, "Rsqrt"}, {}, {}});
  add("math.erf", {{kMath, "Erf"}, {}, {}});
  for (const auto& [name, class_name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"add", "Add"},
                                                                  {"subtract", "Subtract"},
                                                                  {"multiply", "Multiply"},
                                                                  {"divide", "Divide"},
                                                                  {"truediv", "TrueDivide"},
                                                                  {"floordiv", "FloorDivide"},
                                                                  {"pow", "Power"},
                                                                  {"maximum", "Maximum"},
                                                                  {"minimum", "Minimum"},
                                                                  {"greater", "Greater"},
                                                                  {"greater_equal", "GreaterEqual"},
                                                                  {"less", "Less"},
                                                                  {"less_equal", "LessEqual"},
                                                                  {"equal", "Equal"},
                                                                  {"not_equal", "NotEqual"},
                                                                  {"floormod", "Mod"},
                                                                  {"logical_and", "LogicalAnd"},
                                                                  {"logical_or", "LogicalOr"},
                                                                  {"divide_no_nan", "DivideNoNan"}})
    table.emplace("math." + std::string(name), Row{{kNumpy, class_name}, {"y"}, {}});
  add("__operators__.add", {{kNumpy, "Add"}, {"y"}, {}});
  add("__operators__.eq", {{kNumpy, "Equal"}, {"y"}, {}});
  add("__operators__.ne", {{kNumpy, "NotEqual"}, {"y"}, {}});
  add("compat.v1.floor_div", {{kNumpy, "FloorDivide"}, {"y"}, {}});
  add("compat.v1.div", {{kNumpy, "Divide"}, {"y"}, {}});
  add("math.atan2", {{kNumpy, "Arctan2"}, {"x"}, {}});
  for (const auto& [name, class_name] : std::initializer_list<std::pair<const char*, const char*>>{{"mean", "Mean"},
                                                                                                   {"sum", "Sum"},
                                                                                                   {"max", "Max"},
                                                                                                   {"min", "Min"},
                                                                                                   {"prod", "Prod"},
                                                                                                   {"std", "Std"},
                                                                                                   {"variance", "Var"},
                                                                                                   {"any", "Any"},
                                                                                                   {"all", "All"}})
    table.emplace("math.reduce_" + std::string(name),
                  Row{{kNumpy, class_name}, {}, {{"axis", "axis", nullptr}, {"keepdims", "keepdims", false}}});
  add("math.reduce_logsumexp",
      {{kMath, "Logsumexp"}, {}, {{"axis", "axis", nullptr}, {"keepdims", "keepdims", false}}});
  for (const auto& [name, class_name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"nn.relu", "Relu"},
                                                                  {"nn.relu6", "Relu6"},
                                                                  {"math.sigmoid", "Sigmoid"},
                                                                  {"nn.silu", "Silu"},
                                                                  {"nn.selu", "Selu"},
                                                                  {"math.softplus", "Softplus"},
                                                                  {"nn.softsign", "Softsign"},
                                                                  {"math.log_sigmoid", "LogSigmoid"}})
    table.emplace(name, Row{{kNN, class_name}, {}, {}});
  add("nn.elu", {{kNN, "Elu"}, {}, {{"", "alpha", 1.0}}});
  add("nn.gelu", {{kNN, "Gelu"}, {}, {{"approximate", "approximate", false}}});
  add("nn.leaky_relu", {{kNN, "LeakyRelu"}, {}, {{"alpha", "negative_slope", 0.2}}});
  add("nn.softmax", {{kNN, "Softmax"}, {}, {{"axis", "axis", -1}}});
  add("nn.log_softmax", {{kNN, "LogSoftmax"}, {}, {{"axis", "axis", -1}}});
  add("clip_by_value",
      {{kNumpy, "Clip"}, {}, {{"clip_value_min", "x_min", nullptr}, {"clip_value_max", "x_max", nullptr}}});
  add("cast", {{kCore, "Cast"}, {}, {{"dtype", "dtype", "float32"}}});
  add("stop_gradient", {{kCore, "StopGradient"}, {}, {}});
  add("where", {{kNumpy, "Where"}, {"x", "y"}, {}});
  add("concat", {{kNumpy, "Concatenate"}, {}, {{"axis", "axis", 0}}});
  add("stack", {{kNumpy, "Stack"}, {}, {{"axis", "axis", 0}}});
  add("unstack", {{kCore, "Unstack"}, {}, {{"num", "num", nullptr}, {"axis", "axis", 0}}});
  add("reshape", {{kNumpy, "Reshape"}, {}, {{"shape", "newshape", nullptr}}});
  add("expand_dims", {{kNumpy, "ExpandDims"}, {}, {{"axis", "axis", nullptr}}});
  add("compat.v1.squeeze", {{kNumpy, "Squeeze"}, {}, {{"axis", "axis", nullptr}}});
  add("squeeze", {{kNumpy, "Squeeze"}, {}, {{"axis", "axis", nullptr}}});
  add("tile", {{kNumpy, "Tile"}, {}, {{"multiples", "repeats", nullptr}}});
  add("repeat", {{kNumpy, "Repeat"}, {}, {{"repeats", "repeats", nullptr}, {"axis", "axis", nullptr}}});
  add("broadcast_to", {{kNumpy, "BroadcastTo"}, {}, {{"shape", "shape", nullptr}}});
  add("reverse", {{kNumpy, "Flip"}, {}, {{"axis", "axis", nullptr}}});
  add("roll", {{kNumpy, "Roll"}, {}, {{"shift", "shift", nullptr}, {"axis", "axis", nullptr}}});
  add("tensordot", {{kNumpy, "Tensordot"}, {"b"}, {{"axes", "axes", 2}}});
  add("math.top_k", {{kMath, "TopK"}, {}, {{"k", "k", 1}, {"sorted", "sorted", true}}});
  add("slice", {{kCore, "Slice"}, {"begin"}, {{"size", "shape", nullptr}}});
  add("image.rgb_to_grayscale", {{kImage, "RGBToGrayscale"}, {}, {{"", "data_format", "channels_last"}}});
  add("math.add_n", {{kLayers, "Add"}, {}, {}});
  add("keras.backend.batch_flatten", {{kLayers, "Flatten"}, {}, {}});
  add("identity", {{kLayers, "Identity"}, {}, {}});
  add("zeros_like", {{kNumpy, "ZerosLike"}, {}, {{"dtype", "dtype", nullptr}}});
  add("ones_like", {{kNumpy, "OnesLike"}, {}, {{"dtype", "dtype", nullptr}}});
  return table;
}

using Calls = std::vector<OperationCall>;

Json step(size_t index) {
  return json_object({{kStep, index}});
}

std::string lower(Json text) {
  std::string made = text.is_string() ? text.get<std::string>() : "";
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

// Functions whose arguments have another form in Keras, or that take several operations.
using Special = std::function<Calls(const Json& first, Taker& named)>;

Calls transpose(const Json& first, Taker& named) {
  named.only("conjugate", false);
  return {{{kNumpy, "Transpose"}, json_object({{"axes", named.take("perm", nullptr)}}), {first}}};
}

Calls swapped(const Json& first) {
  return {{{kNumpy, "Swapaxes"}, json_object({{"axis1", -1}, {"axis2", -2}}), {first}}};
}

Calls matmul(const Json& first, Taker& named) {
  Calls calls;
  Json sides[] = {first, named.take("b", nullptr)};
  const char* flags[] = {"transpose_a", "transpose_b"};
  for (size_t k = 0; k < 2; ++k) {
    if (named.take(flags[k], false) != true) continue;
    calls.push_back(swapped(sides[k])[0]);
    sides[k] = step(calls.size() - 1);
  }
  for (const char* flag : {"adjoint_a", "adjoint_b", "a_is_sparse", "b_is_sparse"}) named.only(flag, false);
  calls.push_back({{kNumpy, "Matmul"}, Json::object(), {sides[0], sides[1]}});
  return calls;
}

Calls squared_difference(const Json& first, Taker& named) {
  return {{{kNumpy, "Subtract"}, Json::object(), {first, named.take("y", nullptr)}},
          {{kNumpy, "Square"}, Json::object(), {step(0)}}};
}

// x * rsqrt(max(sum(x^2), epsilon)); Keras takes the root of epsilon.
Calls l2_normalize(const Json& first, Taker& named) {
  const Json epsilon = named.take("epsilon", 1e-12);
  const double root = epsilon.is_number() ? std::sqrt(epsilon.get<double>()) : 0;
  return {{{kNN, "Normalize"},
           json_object({{"axis", named.take("axis", nullptr)}, {"order", 2}, {"epsilon", root}}),
           {first}}};
}

Calls norm(const Json& first, Taker& named) {
  Json order = named.take("ord", "euclidean");
  if (order == "euclidean") order = nullptr;
  return {{{"keras.src.ops.linalg", "Norm"},
           json_object(
               {{"ord", order}, {"axis", named.take("axis", nullptr)}, {"keepdims", named.take("keepdims", false)}}),
           {first}}};
}

// TensorFlow lists the sizes of the pieces, Keras the places of the cuts.
Calls split(const Json& first, Taker& named) {
  Json pieces = named.take("num_or_size_splits", nullptr);
  if (pieces.is_array()) {
    Json cuts = Json::array();
    int64_t at = 0;
    constexpr int64_t kMost = int64_t{1} << 31;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      if (!pieces[i].is_number_integer() || pieces[i].get<int64_t>() < 0 || pieces[i].get<int64_t>() > kMost) return {};
      at += pieces[i].get<int64_t>();
      cuts.push_back(at);
    }
    pieces = std::move(cuts);
  }
  named.only("num", nullptr);
  return {
      {{kNumpy, "Split"}, json_object({{"indices_or_sections", pieces}, {"axis", named.take("axis", 0)}}), {first}}};
}

Calls pad(const Json& first, Taker& named) {
  const std::string mode = lower(named.take("mode", "CONSTANT"));
  Calls calls{
      {{kNumpy, "Pad"}, json_object({{"pad_width", named.take("paddings", nullptr)}, {"mode", mode}}), {first}}};
  const Json value = named.take("constant_values", 0);
  if (mode == "constant") calls[0].arguments.push_back(value);
  return calls;
}

Calls gather(const Json& first, Taker& named) {
  named.only("batch_dims", 0);
  const Json ids = named.take("indices", nullptr);
  return {{{kNumpy, "Take"}, json_object({{"axis", named.take("axis", 0)}}), {first, ids}}};
}

Calls one_hot(const Json& first, Taker& named) {
  named.only("on_value", 1);
  named.only("off_value", 0);
  return {{{kNN, "OneHot"},
           json_object({{"num_classes", named.take("depth", nullptr)},
                        {"axis", named.take("axis", -1)},
                        {"dtype", named.take("dtype", "float32")}}),
           {first}}};
}

Calls arg_of(const char* class_name, const Json& first, Taker& named) {
  named.only("output_type", "int64");
  named.only("output_type", "int32");
  return {{{kNumpy, class_name}, json_object({{"axis", named.take("axis", 0)}, {"keepdims", false}}), {first}}};
}

Calls cumulative(const char* class_name, const Json& first, Taker& named) {
  for (const char* flag : {"exclusive", "reverse"}) named.only(flag, false);
  return {{{kNumpy, class_name}, json_object({{"axis", named.take("axis", 0)}}), {first}}};
}

Calls sorted(const char* class_name, const Json& first, Taker& named) {
  named.only("direction", "ASCENDING");
  named.only("stable", false);
  return {{{kNumpy, class_name}, json_object({{"axis", named.take("axis", -1)}}), {first}}};
}

constexpr size_t kImageRank = 4;

// TensorFlow's windows may be [1, height, width, 1].
Json spatial(Json size) {
  if (size.is_array() && size.size() == kImageRank && size[0] == 1 && size[3] == 1)
    return Json::array({size[1], size[2]});
  return size;
}

Calls pool(const char* class_name, const Json& first, Taker& named) {
  named.only("data_format", "NHWC");
  return {{{kNN, class_name},
           json_object({{"pool_size", spatial(named.take("ksize", nullptr))},
                        {"strides", spatial(named.take("strides", nullptr))},
                        {"padding", lower(named.take("padding", "VALID"))},
                        {"data_format", "channels_last"}}),
           {first},
           kImageRank}};
}

Calls blocks(const char* class_name, const Json& first, Taker& named) {
  named.only("data_format", "NHWC");
  return {{{kNN, class_name},
           json_object({{"block_size", named.take("block_size", nullptr)}, {"data_format", "channels_last"}}),
           {first},
           kImageRank}};
}

Calls resize(const Json& first, Taker& named) {
  const std::string method = lower(named.take("method", "bilinear"));
  named.only("preserve_aspect_ratio", false);
  return {{{kImage, "Resize"},
           json_object({{"size", named.take("size", nullptr)},
                        {"interpolation", method},
                        {"antialias", named.take("antialias", false)},
                        {"data_format", "channels_last"}}),
           {first},
           kImageRank}};
}

Calls flip(int axis, const Json& first) {
  return {{{kNumpy, "Flip"}, json_object({{"axis", axis}}), {first}}};
}

// A slice {"start", "stop", "step"} gets Keras 3's class; indices, None and the ellipsis stay.
Calls get_item(const Json& first, Taker& named) {
  Json spec = named.take("slice_spec", nullptr);
  if (!spec.is_array()) spec = Json::array({spec});
  for (Json& one : spec)
    if (one.is_object() && one.contains("start") && one.contains("stop") && one.contains("step"))
      one = json_object({{"class_name", "__slice__"}, {"config", one}});
  return {{{kNumpy, "GetItem"}, Json::object(), {first, spec}}};
}

// x + bias along the last dimension.
Calls bias_add(const Json& first, Taker& named) {
  named.only("data_format", "NHWC");
  return {{{kNumpy, "Add"}, Json::object(), {first, named.take("bias", nullptr)}}};
}

const std::map<std::string, Special, std::less<>>& specials() {
  static const std::map<std::string, Special, std::less<>> kTable = [] {
    std::map<std::string, Special, std::less<>> made;
    const auto with = [](auto function, const char* class_name) {
      return [=](const Json& first, Taker& named) { return function(class_name, first, named); };
    };
    for (const char* name : {"transpose", "compat.v1.transpose"}) made[name] = transpose;
    made["linalg.matrix_transpose"] = [](const Json& first, Taker& named) {
      named.only("conjugate", false);
      return swapped(first);
    };
    for (const char* name : {"linalg.matmul", "matmul"}) made[name] = matmul;
    made["math.squared_difference"] = squared_difference;
    made["math.l2_normalize"] = l2_normalize;
    for (const char* name : {"norm", "compat.v1.norm"}) made[name] = norm;
    made["split"] = split;
    for (const char* name : {"pad", "compat.v1.pad"}) made[name] = pad;
    for (const char* name : {"gather", "compat.v1.gather"}) made[name] = gather;
    made["one_hot"] = one_hot;
    for (const char* name : {"math.argmax", "argmax"}) made[name] = with(arg_of, "Argmax");
    for (const char* name : {"math.argmin", "argmin"}) made[name] = with(arg_of, "Argmin");
    made["math.cumsum"] = with(cumulative, "Cumsum");
    made["math.cumprod"] = with(cumulative, "Cumprod");
    made["sort"] = with(sorted, "Sort");
    made["argsort"] = with(sorted, "Argsort");
    for (const char* name : {"nn.max_pool2d", "nn.max_pool", "compat.v1.nn.max_pool"})
      made[name] = with(pool, "MaxPool");
    for (const char* name : {"nn.avg_pool2d", "nn.avg_pool", "compat.v1.nn.avg_pool"})
      made[name] = with(pool, "AveragePool");
    made["nn.depth_to_space"] = with(blocks, "DepthToSpace");
    made["nn.space_to_depth"] = with(blocks, "SpaceToDepth");
    made["image.resize"] = resize;
    made["image.flip_left_right"] = [](const Json& first, Taker&) { return flip(-2, first); };
    made["image.flip_up_down"] = [](const Json& first, Taker&) { return flip(-3, first); };
    made["__operators__.getitem"] = get_item;
    made["nn.bias_add"] = bias_add;
    made["ensure_shape"] = [](const Json& first, Taker& named) {
      named.take("shape", nullptr);
      return Calls{{{kLayers, "Identity"}, Json::object(), {first}}};
    };
    made["debugging.check_numerics"] = [](const Json& first, Taker& named) {
      named.take("message", nullptr);
      return Calls{{{kLayers, "Identity"}, Json::object(), {first}}};
    };
    return made;
  }();
  return kTable;
}

}  // namespace

bool is_operation(const Target& target) {
  return std::string_view(target.module) != kLayers;
}

std::optional<std::vector<OperationCall>> counterpart(const std::string& function, const Json& first, Named named) {
  static const auto kTable = make_table();
  Taker taker(named);
  Calls calls;
  if (const auto special = specials().find(function); special != specials().end()) {
    calls = special->second(first, taker);
  } else if (const auto row = kTable.find(function); row != kTable.end()) {
    OperationCall call{row->second.to, Json::object(), {first}};
    for (const char* name : row->second.arguments) {
      if (named.count(name) == 0) return std::nullopt;
      call.arguments.push_back(taker.take(name, nullptr));
    }
    for (const Option& option : row->second.options) call.config[option.to] = taker.take(option.from, option.otherwise);
    calls.push_back(std::move(call));
  }
  if (calls.empty() || !named.empty()) return std::nullopt;
  return calls;
}

}  // namespace plimsoll::engine
