#include <array>

#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {
namespace {

struct Named {
  Op op;
  std::string_view name;
};
constexpr std::array kNames = {
    Named{Op::kAdd, "ADD"},
    Named{Op::kAveragePool, "AVERAGE_POOL_2D"},
    Named{Op::kConcat, "CONCATENATION"},
    Named{Op::kConv, "CONV_2D"},
    Named{Op::kDepthwiseConv, "DEPTHWISE_CONV_2D"},
    Named{Op::kDequantize, "DEQUANTIZE"},
    Named{Op::kFullyConnected, "FULLY_CONNECTED"},
    Named{Op::kLogistic, "LOGISTIC"},
    Named{Op::kMaxPool, "MAX_POOL_2D"},
    Named{Op::kMul, "MUL"},
    Named{Op::kRelu, "RELU"},
    Named{Op::kRelu6, "RELU6"},
    Named{Op::kReshape, "RESHAPE"},
    Named{Op::kResizeBilinear, "RESIZE_BILINEAR"},
    Named{Op::kSoftmax, "SOFTMAX"},
    Named{Op::kTanh, "TANH"},
    Named{Op::kPad, "PAD"},
    Named{Op::kGather, "GATHER"},
    Named{Op::kTranspose, "TRANSPOSE"},
    Named{Op::kMean, "MEAN"},
    Named{Op::kSub, "SUB"},
    Named{Op::kDiv, "DIV"},
    Named{Op::kExp, "EXP"},
    Named{Op::kCast, "CAST"},
    Named{Op::kMaximum, "MAXIMUM"},
    Named{Op::kMinimum, "MINIMUM"},
    Named{Op::kPadV2, "PADV2"},
    Named{Op::kSlice, "SLICE"},
    Named{Op::kTransposeConv, "TRANSPOSE_CONV"},
    Named{Op::kLog, "LOG"},
    Named{Op::kSum, "SUM"},
    Named{Op::kSqrt, "SQRT"},
    Named{Op::kRsqrt, "RSQRT"},
    Named{Op::kReduceMax, "REDUCE_MAX"},
    Named{Op::kSquare, "SQUARE"},
    Named{Op::kResizeNearest, "RESIZE_NEAREST_NEIGHBOR"},
    Named{Op::kLeakyRelu, "LEAKY_RELU"},
    Named{Op::kAbs, "ABS"},
    Named{Op::kElu, "ELU"},
    Named{Op::kQuantize, "QUANTIZE"},
    Named{Op::kHardSwish, "HARD_SWISH"},
    Named{Op::kBatchMatmul, "BATCH_MATMUL"},
    Named{Op::kGelu, "GELU"},
};

constexpr auto kOps = [] {
  std::array<Op, kNames.size()> ops{};
  for (size_t i = 0; i < ops.size(); ++i) ops[i] = kNames[i].op;
  return ops;
}();

}  // namespace

std::string_view name_of(Op op) {
  for (const Named& named : kNames)
    if (named.op == op) return named.name;
  return {};
}

std::span<const Op> all_ops() {
  return kOps;
}

Bytes size_of(Type type) {
  switch (type) {
    case Type::kFloat32:
    case Type::kInt32:
      return 4;
    case Type::kInt64:
      return 8;
    case Type::kFloat16:
      return 2;
    default:
      return 1;
  }
}

std::string_view name_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return "float32";
    case Type::kFloat16:
      return "float16";
    case Type::kInt32:
      return "int32";
    case Type::kUInt8:
      return "uint8";
    case Type::kInt64:
      return "int64";
    case Type::kBool:
      return "bool";
    case Type::kInt8:
      return "int8";
  }
  return "?";
}

}  // namespace plimsoll::engine::lite
