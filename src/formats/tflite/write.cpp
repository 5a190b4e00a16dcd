// Writes a `.tflite` file. Versions of operators are the lowest that have what is written.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <schema_generated.h>
#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {
namespace {

namespace fb = ::flatbuffers;
namespace schema = ::plimsoll::tflite_schema;

constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();

int32_t version_of(const Model& model, const Operator& node) {
  const auto has = [&](size_t i) { return i < node.inputs.size() && node.inputs[i] >= 0; };
  const auto type = [&](size_t i) { return has(i) ? model.tensor(node.inputs[i]).type : Type::kFloat32; };
  const bool int8 = type(0) == Type::kInt8 || type(0) == Type::kUInt8;
  switch (node.op) {
    case Op::kConv:
      return type(0) == Type::kFloat32 && type(1) == Type::kInt8 ? 5 : int8 ? 3 : 1;
    case Op::kDepthwiseConv: {
      const bool dilated = node.options.dilation != std::array<int32_t, 2>{1, 1};
      return type(0) == Type::kFloat32 && type(1) == Type::kInt8 ? 6 : int8 ? 3 : dilated ? 2 : 1;
    }
    case Op::kFullyConnected: {
      const bool per_channel = has(1) && model.tensor(node.inputs[1]).quantization.scales.size() > 1;
      if (type(0) == Type::kFloat32 && type(1) == Type::kInt8) return per_channel ? 12 : 9;
      if (!has(2)) return 6;
      return int8 && per_channel ? 12 : int8 ? 4 : 1;
    }
    case Op::kTransposeConv:
      return node.inputs.size() > 3 ? 3 : int8 ? 2 : 1;
    case Op::kGather:
    case Op::kSlice:
    case Op::kPad:
    case Op::kPadV2:
    case Op::kBatchMatmul:
      return int8 ? 2 : 1;
    case Op::kDequantize:
      return type(0) == Type::kFloat16 ? 3 : 2;
    case Op::kQuantize:
      return int8 ? 2 : 1;
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kAveragePool:
    case Op::kMaxPool:
    case Op::kConcat:
    case Op::kSoftmax:
    case Op::kLogistic:
    case Op::kTanh:
    case Op::kTranspose:
    case Op::kMean:
    case Op::kSum:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kRelu:
    case Op::kRelu6:
    case Op::kLeakyRelu:
    case Op::kReduceMax:
    case Op::kRsqrt:
    case Op::kAbs:
    case Op::kExp:
      return int8 ? 2 : 1;
    case Op::kResizeBilinear:
    case Op::kResizeNearest:
      return node.options.half_pixel_centers ? 3 : int8 ? 2 : 1;
    default:
      return 1;
  }
}

struct OptionsOffset {
  schema::Options type = schema::Options::NONE;
  fb::Offset<void> at;
};

int8_t number(Activation a) {
  return static_cast<int8_t>(a);
}

OptionsOffset write_options(fb::FlatBufferBuilder& b, const Operator& node) {
  const Options& o = node.options;
  const auto padding = static_cast<int8_t>(o.padding);
  const auto [sh, sw] = o.stride;
  const auto [dh, dw] = o.dilation;
  using schema::Options;
  switch (node.op) {
    case Op::kConv:
      return {Options::Conv2DOptions,
              schema::CreateConv2DOptions(b, padding, sw, sh, number(o.activation), dw, dh).Union()};
    case Op::kDepthwiseConv:
      return {
          Options::DepthwiseConv2DOptions,
          schema::CreateDepthwiseConv2DOptions(b, padding, sw, sh, o.multiplier, number(o.activation), dw, dh).Union()};
    case Op::kAveragePool:
    case Op::kMaxPool:
      return {Options::Pool2DOptions,
              schema::CreatePool2DOptions(b, padding, sw, sh, o.filter[1], o.filter[0], number(o.activation)).Union()};
    case Op::kFullyConnected:
      return {Options::FullyConnectedOptions,
              schema::CreateFullyConnectedOptions(b, number(o.activation), 0, o.keep_dims).Union()};
    case Op::kSoftmax:
      return {Options::SoftmaxOptions, schema::CreateSoftmaxOptions(b, o.beta).Union()};
    case Op::kConcat:
      return {Options::ConcatenationOptions,
              schema::CreateConcatenationOptions(b, o.axis, number(o.activation)).Union()};
    case Op::kAdd:
      return {Options::AddOptions, schema::CreateAddOptions(b, number(o.activation)).Union()};
    case Op::kMul:
      return {Options::MulOptions, schema::CreateMulOptions(b, number(o.activation)).Union()};
    case Op::kSub:
      return {Options::SubOptions, schema::CreateSubOptions(b, number(o.activation)).Union()};
    case Op::kDiv:
      return {Options::DivOptions, schema::CreateDivOptions(b, number(o.activation)).Union()};
    case Op::kGather:
      return {Options::GatherOptions, schema::CreateGatherOptions(b, o.axis, 0).Union()};
    case Op::kMean:
    case Op::kSum:
    case Op::kReduceMax:
      return {Options::ReducerOptions, schema::CreateReducerOptions(b, o.keep_dims).Union()};
    case Op::kResizeBilinear:
      return {Options::ResizeBilinearOptions,
              schema::CreateResizeBilinearOptions(b, 0, 0, false, o.half_pixel_centers).Union()};
    case Op::kResizeNearest:
      return {Options::ResizeNearestNeighborOptions,
              schema::CreateResizeNearestNeighborOptions(b, false, o.half_pixel_centers).Union()};
    case Op::kTransposeConv:
      return {Options::TransposeConvOptions,
              schema::CreateTransposeConvOptions(b, padding, sw, sh, number(o.activation)).Union()};
    case Op::kCast:
      return {Options::CastOptions,
              schema::CreateCastOptions(b, static_cast<int8_t>(o.from), static_cast<int8_t>(o.to)).Union()};
    case Op::kLeakyRelu:
      return {Options::LeakyReluOptions, schema::CreateLeakyReluOptions(b, o.alpha).Union()};
    case Op::kBatchMatmul:
      return {Options::BatchMatMulOptions, schema::CreateBatchMatMulOptions(b, o.adjoint_x, o.adjoint_y).Union()};
    case Op::kGelu:
      return {Options::GeluOptions, schema::CreateGeluOptions(b, o.approximate).Union()};
    default:
      return {};
  }
}

fb::Offset<schema::QuantizationParameters> write_quantization(fb::FlatBufferBuilder& b, const Quantization& q) {
  if (q.empty()) return 0;
  const auto scales = b.CreateVector(q.scales);
  const auto zeros = b.CreateVector(q.zeros);
  return schema::CreateQuantizationParameters(b, 0, 0, scales, zeros, 0, 0, q.axis);
}

}  // namespace

Result<std::vector<std::byte>> encode(const Model& model) {
  Bytes all = 0;
  for (const Tensor& t : model.tensors) all += static_cast<Bytes>(t.data.size()) + 256;
  if (all >= kMostBytes)
    return fail(ErrorCode::kWriteFailed,
                fmt::format("the .tflite file would have {}, and the format ends at 2 GiB", format_bytes(all)));
  fb::FlatBufferBuilder b(static_cast<size_t>(all) + 4096);
  // Buffer 0 is the empty one of all tensors that are not constant.
  std::vector<fb::Offset<schema::Buffer>> buffers{schema::CreateBuffer(b)};
  std::vector<fb::Offset<schema::Tensor>> tensors;
  for (const Tensor& t : model.tensors) {
    uint32_t buffer = 0;
    if (t.constant()) {
      buffer = static_cast<uint32_t>(buffers.size());
      b.ForceVectorAlignment(t.data.size(), 1, 16);
      const auto data = b.CreateVector(reinterpret_cast<const uint8_t*>(t.data.data()), t.data.size());
      buffers.push_back(schema::CreateBuffer(b, data));
    }
    const auto shape = b.CreateVector(t.shape);
    const auto name = b.CreateString(t.name);
    const auto quantization = write_quantization(b, t.quantization);
    tensors.push_back(schema::CreateTensor(b, shape, static_cast<int8_t>(t.type), buffer, name, quantization));
  }
  std::map<std::pair<Op, int32_t>, uint32_t> numbers;
  std::vector<fb::Offset<schema::OperatorCode>> codes;
  std::vector<fb::Offset<schema::Operator>> operators;
  for (const Operator& node : model.operators) {
    const std::pair key{node.op, version_of(model, node)};
    const auto [found, added] = numbers.try_emplace(key, static_cast<uint32_t>(codes.size()));
    const auto code = static_cast<int32_t>(node.op);
    if (added)  // readers of before 2020 know only the first field
      codes.push_back(schema::CreateOperatorCode(b, static_cast<int8_t>(std::min(code, 127)), 0, key.second, code));
    const OptionsOffset options = write_options(b, node);
    const auto inputs = b.CreateVector(node.inputs), outputs = b.CreateVector(node.outputs);
    operators.push_back(schema::CreateOperator(b, found->second, inputs, outputs, options.type, options.at));
  }
  const auto subgraph =
      schema::CreateSubGraph(b, b.CreateVector(tensors), b.CreateVector(model.inputs), b.CreateVector(model.outputs),
                             b.CreateVector(operators), b.CreateString("main"));
  const auto root = schema::CreateModel(b, 3, b.CreateVector(codes), b.CreateVector(&subgraph, 1),
                                        b.CreateString(model.description), b.CreateVector(buffers));
  schema::FinishModelBuffer(b, root);
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return std::vector<std::byte>(begin, begin + b.GetSize());
}

Status write_lite(std::span<const std::byte> file, const std::string& path) {
  PLIMSOLL_ASSIGN(AtomicFile out, AtomicFile::create(path));
  PLIMSOLL_TRY(out.reserve(static_cast<int64_t>(file.size())));
  PLIMSOLL_TRY(out.write(file));
  return out.commit();
}

}  // namespace plimsoll::engine::lite
