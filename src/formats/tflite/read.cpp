// Reads a `.tflite` file that may be hostile: FlatBuffers' verifier checks the offsets, the functions here check what
// the offsets lead to.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <schema_generated.h>
#include "base/checked.h"
#include "base/printable.h"
#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {
namespace {

namespace fb = ::flatbuffers;
namespace schema = ::plimsoll::tflite_schema;

constexpr int64_t kMostFileBytes = std::numeric_limits<int32_t>::max();
constexpr size_t kMostRank = 8;
constexpr size_t kMostTensors = 1 << 20;
constexpr int64_t kMostElements = int64_t{1} << 31;

Error damaged(const std::string& file, std::string what) {
  return Error{
      ErrorCode::kNotAKerasFile, fmt::format("{} is not a readable .tflite file", file), {std::move(what)}, {}};
}

template <typename T>
size_t length(const fb::Vector<T>* list) {
  return list == nullptr ? 0 : list->size();
}

// The verifier aligns a vector only for its length, so a list of 8-byte numbers may lie at any multiple of 4.
int64_t number_at(const fb::Vector<int64_t>& list, size_t i) {
  int64_t number = 0;
  std::memcpy(&number, list.Data() + i * sizeof number, sizeof number);
  return fb::EndianScalar(number);
}

struct Reader {
  const std::string& name;
  const schema::Model& file;
  Model model;
  std::set<std::string> unknown;  // operators and types that we do not have

  Error bad(std::string what) const { return damaged(name, std::move(what)); }

  Status tensors(const schema::SubGraph& graph);
  Status tensor(const schema::Tensor& from, Tensor& to, size_t index);
  Status quantization(const schema::QuantizationParameters& from, Tensor& to, const std::string& where);
  Status operators(const schema::SubGraph& graph);
  Status options(const schema::Operator& from, Operator& to, const std::string& where);
  Status order() const;
  Result<std::vector<int32_t>> indices(const fb::Vector<int32_t>* from, bool may_be_absent, const std::string& where);
};

bool is_type(int8_t type) {
  switch (static_cast<Type>(type)) {
    case Type::kFloat32:
    case Type::kFloat16:
    case Type::kInt32:
    case Type::kUInt8:
    case Type::kInt64:
    case Type::kBool:
    case Type::kInt8:
      return true;
  }
  return false;
}

Status Reader::quantization(const schema::QuantizationParameters& from, Tensor& to, const std::string& where) {
  const size_t n = length(from.scale());
  if (n == 0) return {};
  const int32_t axis = from.quantized_dimension();
  if (axis < 0 || (n > 1 && static_cast<size_t>(axis) >= to.shape.size()))
    return fail(bad(fmt::format("{}: its scales are along dimension {} of {}", where, axis, to.shape.size())));
  if (n > 1 && n != static_cast<size_t>(to.shape[static_cast<size_t>(axis)]))
    return fail(bad(fmt::format("{}: it has {} scales", where, n)));
  const size_t zeros = length(from.zero_point());
  if (zeros != 0 && zeros != n && zeros != 1) return fail(bad(fmt::format("{}: it has {} zero points", where, zeros)));
  to.quantization.axis = axis;
  for (size_t i = 0; i < n; ++i) {
    const float scale = from.scale()->Get(static_cast<fb::uoffset_t>(i));
    if (!std::isfinite(scale) || scale <= 0) return fail(bad(fmt::format("{}: a scale is {}", where, scale)));
    const int64_t zero = zeros == 0 ? 0 : number_at(*from.zero_point(), zeros == 1 ? 0 : i);
    const bool in_range = to.type == Type::kInt8    ? zero >= -128 && zero <= 127
                          : to.type == Type::kUInt8 ? zero >= 0 && zero <= 255
                                                    : zero == 0;
    if (!in_range) return fail(bad(fmt::format("{}: a zero point is {}", where, zero)));
    to.quantization.scales.push_back(scale);
    to.quantization.zeros.push_back(zero);
  }
  return {};
}

Status Reader::tensor(const schema::Tensor& from, Tensor& to, size_t index) {
  if (from.name() != nullptr) to.name = from.name()->str();
  const std::string where = fmt::format("tensor {} ({})", index, printable(to.name));
  if (!is_type(from.type())) {
    unknown.insert(fmt::format("tensors of type {}", static_cast<int>(from.type())));
    return {};
  }
  to.type = static_cast<Type>(from.type());
  if (length(from.shape()) > kMostRank) return fail(bad(where + ": it has too many dimensions"));
  int64_t elements = 1;
  for (size_t d = 0; d < length(from.shape()); ++d) {
    const int32_t size = from.shape()->Get(static_cast<fb::uoffset_t>(d));
    if (size < 1) return fail(bad(fmt::format("{}: dimension {} is {}", where, d, size)));
    elements *= size;  // below 2^31 * 2^31
    if (elements > kMostElements) return fail(bad(where + ": it is too large"));
    to.shape.push_back(size);
  }
  if (from.quantization() != nullptr) PLIMSOLL_TRY(quantization(*from.quantization(), to, where));
  if (from.is_variable()) unknown.insert("tensors that keep their values between runs");
  if (length(from.sparsity()) > 0) unknown.insert("sparse tensors");
  if (from.buffer() >= length(file.buffers()))
    return fail(bad(fmt::format("{}: buffer {} of {}", where, from.buffer(), length(file.buffers()))));
  const schema::Buffer* buffer = file.buffers()->Get(from.buffer());
  if (buffer == nullptr || length(buffer->data()) == 0) return {};
  const auto* data = reinterpret_cast<const std::byte*>(buffer->data()->data());
  if (static_cast<Bytes>(buffer->data()->size()) != to.bytes())
    return fail(bad(fmt::format("{}: {} bytes for {}", where, buffer->data()->size(), to.bytes())));
  to.data.assign(data, data + buffer->data()->size());
  return {};
}

Status Reader::tensors(const schema::SubGraph& graph) {
  if (length(graph.tensors()) > kMostTensors) return fail(bad("it has too many tensors"));
  // Several tensors may share a buffer, and each gets a copy: the copies together must not exceed the file by far.
  CheckedSum copied;
  for (size_t i = 0; i < length(graph.tensors()); ++i) {
    const schema::Tensor* from = graph.tensors()->Get(static_cast<fb::uoffset_t>(i));
    if (from == nullptr) return fail(bad(fmt::format("tensor {} is missing", i)));
    Tensor to;
    PLIMSOLL_TRY(tensor(*from, to, i));
    copied += static_cast<int64_t>(to.data.size());
    if (!copied.value() || *copied.value() > kMostFileBytes) return fail(bad("its tensors are too large"));
    model.tensors.push_back(std::move(to));
  }
  return {};
}

Result<std::vector<int32_t>> Reader::indices(const fb::Vector<int32_t>* from, bool may_be_absent,
                                             const std::string& where) {
  std::vector<int32_t> to;
  for (size_t i = 0; i < length(from); ++i) {
    const int32_t index = from->Get(static_cast<fb::uoffset_t>(i));
    if (index >= static_cast<int32_t>(model.tensors.size()) || index < (may_be_absent ? -1 : 0))
      return fail(bad(fmt::format("{}: tensor {} of {}", where, index, model.tensors.size())));
    to.push_back(index);
  }
  return to;
}

Status Reader::options(const schema::Operator& from, Operator& to, const std::string& where) {
  Options& o = to.options;
  bool right = true;
  // Reads the options if they are the operator's own; some operators may leave them out.
  const auto read = [&]<typename T>(const T* table, auto take, bool required) {
    if (table != nullptr)
      take(*table);
    else if (required || from.builtin_options_type() != schema::Options::NONE)
      right = false;
  };
  int8_t padding = 1, activation = 0;
  const auto window = [&](const auto& t) {
    padding = t.padding();
    activation = t.fused_activation_function();
    o.stride = {t.stride_h(), t.stride_w()};
  };
  const auto fused = [&](const auto& t) { activation = t.fused_activation_function(); };
  switch (to.op) {
    case Op::kConv:
      read(
          from.builtin_options_as_Conv2DOptions(),
          [&](const auto& t) {
            window(t);
            o.dilation = {t.dilation_h_factor(), t.dilation_w_factor()};
          },
          true);
      break;
    case Op::kDepthwiseConv:
      read(
          from.builtin_options_as_DepthwiseConv2DOptions(),
          [&](const auto& t) {
            window(t);
            o.multiplier = t.depth_multiplier();
            o.dilation = {t.dilation_h_factor(), t.dilation_w_factor()};
          },
          true);
      break;
    case Op::kAveragePool:
    case Op::kMaxPool:
      read(
          from.builtin_options_as_Pool2DOptions(),
          [&](const auto& t) {
            window(t);
            o.filter = {t.filter_height(), t.filter_width()};
          },
          true);
      break;
    case Op::kTransposeConv:
      read(from.builtin_options_as_TransposeConvOptions(), window, true);
      break;
    case Op::kFullyConnected:
      read(
          from.builtin_options_as_FullyConnectedOptions(),
          [&](const auto& t) {
            activation = t.fused_activation_function();
            o.keep_dims = t.keep_num_dims();
            if (t.weights_format() != 0) unknown.insert("FULLY_CONNECTED with shuffled weights");
          },
          true);
      break;
    case Op::kSoftmax:
      read(
          from.builtin_options_as_SoftmaxOptions(), [&](const auto& t) { o.beta = t.beta(); }, true);
      break;
    case Op::kConcat:
      read(
          from.builtin_options_as_ConcatenationOptions(),
          [&](const auto& t) {
            o.axis = t.axis();
            activation = t.fused_activation_function();
          },
          true);
      break;
    case Op::kAdd:
      read(from.builtin_options_as_AddOptions(), fused, false);
      break;
    case Op::kMul:
      read(from.builtin_options_as_MulOptions(), fused, false);
      break;
    case Op::kSub:
      read(from.builtin_options_as_SubOptions(), fused, false);
      break;
    case Op::kDiv:
      read(from.builtin_options_as_DivOptions(), fused, false);
      break;
    case Op::kGather:
      read(
          from.builtin_options_as_GatherOptions(),
          [&](const auto& t) {
            o.axis = t.axis();
            if (t.batch_dims() != 0) unknown.insert("GATHER with batch dimensions");
          },
          false);
      break;
    case Op::kMean:
    case Op::kSum:
    case Op::kReduceMax:
      read(
          from.builtin_options_as_ReducerOptions(), [&](const auto& t) { o.keep_dims = t.keep_dims(); }, false);
      break;
    case Op::kResizeBilinear:
      read(
          from.builtin_options_as_ResizeBilinearOptions(),
          [&](const auto& t) {
            o.half_pixel_centers = t.half_pixel_centers();
            if (t.align_corners()) unknown.insert("RESIZE_BILINEAR with aligned corners");
          },
          false);
      break;
    case Op::kResizeNearest:
      read(
          from.builtin_options_as_ResizeNearestNeighborOptions(),
          [&](const auto& t) {
            o.half_pixel_centers = t.half_pixel_centers();
            if (t.align_corners()) unknown.insert("RESIZE_NEAREST_NEIGHBOR with aligned corners");
          },
          false);
      break;
    case Op::kLeakyRelu:
      read(
          from.builtin_options_as_LeakyReluOptions(), [&](const auto& t) { o.alpha = t.alpha(); }, true);
      break;
    case Op::kBatchMatmul:
      read(
          from.builtin_options_as_BatchMatMulOptions(),
          [&](const auto& t) {
            o.adjoint_x = t.adj_x();
            o.adjoint_y = t.adj_y();
          },
          false);
      break;
    case Op::kGelu:
      read(
          from.builtin_options_as_GeluOptions(), [&](const auto& t) { o.approximate = t.approximate(); }, false);
      break;
    default:
      break;
  }
  if (!right) return fail(bad(where + ": its options are of another operator"));
  if (padding != 0 && padding != 1) return fail(bad(where + ": its padding is unknown"));
  o.padding = static_cast<Padding>(padding);
  if (activation < 0 || activation > 4) unknown.insert(fmt::format("the fused activation {}", int{activation}));
  o.activation = static_cast<Activation>(activation);
  constexpr int32_t kMost = 1 << 16;
  const auto size = [&](int32_t n) { return n >= 1 && n <= kMost; };
  for (const auto& pair : {o.stride, o.dilation, o.filter})
    if (!size(pair[0]) || !size(pair[1])) return fail(bad(where + ": its window is impossible"));
  if (!size(o.multiplier)) return fail(bad(where + ": its depth multiplier is impossible"));
  if (!std::isfinite(o.beta) || !std::isfinite(o.alpha)) return fail(bad(where + ": its options are not finite"));
  return {};
}

Status Reader::operators(const schema::SubGraph& graph) {
  for (size_t i = 0; i < length(graph.operators()); ++i) {
    const schema::Operator* from = graph.operators()->Get(static_cast<fb::uoffset_t>(i));
    if (from == nullptr || from->opcode_index() >= length(file.operator_codes()))
      return fail(bad(fmt::format("operator {} is of no kind that the file lists", i)));
    const schema::OperatorCode* code = file.operator_codes()->Get(from->opcode_index());
    if (code == nullptr) return fail(bad(fmt::format("the kind of operator {} is missing", i)));
    Operator to;
    // Old files have the number in the first field alone.
    to.op = static_cast<Op>(std::max<int32_t>(code->builtin_code(), code->deprecated_builtin_code()));
    if (name_of(to.op).empty()) {
      unknown.insert(code->custom_code() != nullptr
                         ? fmt::format("the custom operator {}", printable(code->custom_code()->str()))
                         : fmt::format("operator number {}", static_cast<int32_t>(to.op)));
      continue;
    }
    const std::string where = fmt::format("operator {} ({})", i, name_of(to.op));
    PLIMSOLL_ASSIGN(to.inputs, indices(from->inputs(), true, where));
    PLIMSOLL_ASSIGN(to.outputs, indices(from->outputs(), false, where));
    PLIMSOLL_TRY(options(*from, to, where));
    model.operators.push_back(std::move(to));
  }
  return {};
}

// Every tensor that is read is a constant, an input, or the output of an operator before.
Status Reader::order() const {
  std::vector<bool> known(model.tensors.size());
  for (size_t i = 0; i < known.size(); ++i) known[i] = model.tensors[i].constant();
  const auto make = [&](int32_t i) {
    const bool before = known[static_cast<size_t>(i)];
    known[static_cast<size_t>(i)] = true;
    return !before;
  };
  for (const int32_t i : model.inputs)
    if (!make(i)) return fail(bad(fmt::format("tensor {} is an input and something else", i)));
  for (const Operator& node : model.operators) {
    for (const int32_t i : node.inputs)
      if (i >= 0 && !known[static_cast<size_t>(i)])
        return fail(bad(fmt::format("tensor {} is read before it is written", i)));
    for (const int32_t i : node.outputs)
      if (!make(i)) return fail(bad(fmt::format("tensor {} is written twice", i)));
  }
  for (const int32_t i : model.outputs)
    if (!known[static_cast<size_t>(i)]) return fail(bad(fmt::format("output tensor {} is never written", i)));
  return {};
}

}  // namespace

Result<Model> decode(std::span<const std::byte> bytes, const std::string& name) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (static_cast<int64_t>(bytes.size()) > kMostFileBytes) return fail(damaged(name, "it has more than 2 GiB"));
  fb::Verifier verifier(data, bytes.size(), 32, 1 << 22);
  if (bytes.size() < 8 || !schema::ModelBufferHasIdentifier(data) || !schema::VerifyModelBuffer(verifier))
    return fail(damaged(name, "its structure is damaged, or it is of another format"));
  const schema::Model& file = *schema::GetModel(data);
  Reader reader{name, file, {}, {}};
  if (length(file.subgraphs()) == 0 || file.subgraphs()->Get(0) == nullptr)
    return fail(damaged(name, "it has no graph"));
  if (file.subgraphs()->size() > 1) reader.unknown.insert("several graphs");
  const schema::SubGraph& graph = *file.subgraphs()->Get(0);
  PLIMSOLL_TRY(reader.tensors(graph));
  if (reader.unknown.empty()) {
    PLIMSOLL_ASSIGN(reader.model.inputs, reader.indices(graph.inputs(), false, "the inputs"));
    PLIMSOLL_ASSIGN(reader.model.outputs, reader.indices(graph.outputs(), false, "the outputs"));
  }
  PLIMSOLL_TRY(reader.operators(graph));
  if (!reader.unknown.empty())
    return fail(Error{ErrorCode::kUnsupported,
                      fmt::format("{} uses parts of TensorFlow Lite that Plimsoll does not run", name),
                      {reader.unknown.begin(), reader.unknown.end()},
                      {}});
  PLIMSOLL_TRY(reader.order());
  if (reader.model.inputs.empty() || reader.model.outputs.empty())
    return fail(damaged(name, "it has no inputs or no outputs"));
  if (file.description() != nullptr) reader.model.description = file.description()->str();
  return std::move(reader.model);
}

Result<Model> read_lite(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  if (file.size() > kMostFileBytes) return fail(damaged(path, "it has more than 2 GiB"));
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, bytes));
  return decode(bytes, path);
}

}  // namespace plimsoll::engine::lite
