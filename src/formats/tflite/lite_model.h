// A TensorFlow Lite model as plain structs. write_lite() makes a `.tflite` file of it, read_lite() reads one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine::lite {

// The numbers are those of the format.
enum class Type : int8_t { kFloat32 = 0, kFloat16 = 1, kInt32 = 2, kUInt8 = 3, kInt64 = 4, kBool = 6, kInt8 = 9 };
Bytes size_of(Type type);
std::string_view name_of(Type type);

enum class Op : int32_t {
  kAdd = 0,
  kAveragePool = 1,
  kConcat = 2,
  kConv = 3,
  kDepthwiseConv = 4,
  kDequantize = 6,
  kFullyConnected = 9,
  kLogistic = 14,
  kMaxPool = 17,
  kMul = 18,
  kRelu = 19,
  kRelu6 = 21,
  kReshape = 22,
  kResizeBilinear = 23,
  kSoftmax = 25,
  kTanh = 28,
  kPad = 34,
  kGather = 36,
  kTranspose = 39,
  kMean = 40,
  kSub = 41,
  kDiv = 42,
  kExp = 47,
  kCast = 53,
  kMaximum = 55,
  kMinimum = 57,
  kPadV2 = 60,
  kSlice = 65,
  kTransposeConv = 67,
  kLog = 73,
  kSum = 74,
  kSqrt = 75,
  kRsqrt = 76,
  kReduceMax = 82,
  kSquare = 92,
  kResizeNearest = 97,
  kLeakyRelu = 98,
  kAbs = 101,
  kElu = 111,
  kQuantize = 114,
  kHardSwish = 117,
  kBatchMatmul = 126,
  kGelu = 150,
};
enum class Activation : int8_t { kNone = 0, kRelu = 1, kReluN1To1 = 2, kRelu6 = 3, kTanh = 4 };
enum class Padding : int8_t { kSame = 0, kValid = 1 };

// The options of all operators; each operator uses some of them.
struct Options {
  Padding padding = Padding::kValid;
  std::array<int32_t, 2> stride = {1, 1}, dilation = {1, 1}, filter = {1, 1};  // height, width
  int32_t multiplier = 1;                                                      // of a depthwise convolution
  Activation activation = Activation::kNone;
  int32_t axis = 0;
  float beta = 1, alpha = 0;
  bool keep_dims = false, adjoint_x = false, adjoint_y = false, half_pixel_centers = false, approximate = false;
  Type from = Type::kFloat32, to = Type::kFloat32;  // of a cast
};

// A quantized element q stands for (q - zero) * scale. One scale, or one per slice of `axis`. Empty: not quantized.
struct Quantization {
  std::vector<float> scales;
  std::vector<int64_t> zeros;
  int32_t axis = 0;

  bool empty() const { return scales.empty(); }
  float scale() const { return scales[0]; }
  int32_t zero() const { return static_cast<int32_t>(zeros[0]); }
};

struct Tensor {
  std::string name;
  std::vector<int32_t> shape;
  Type type = Type::kFloat32;
  Quantization quantization;
  std::vector<std::byte> data;  // of a constant
  std::string layer;            // the layer of the Keras model; not in the file

  int64_t elements() const {
    int64_t n = 1;
    for (const int32_t d : shape) n *= d;
    return n;
  }
  Bytes bytes() const { return elements() * size_of(type); }
  bool constant() const { return !data.empty(); }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data.data()), data.size() / sizeof(T)};
  }
};

struct Operator {
  Op op = Op::kAdd;
  std::vector<int32_t> inputs;  // indices of tensors; -1: an input that is left out
  std::vector<int32_t> outputs;
  Options options;
};

struct Model {
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;  // every tensor is produced before it is read
  std::vector<int32_t> inputs, outputs;
  std::string description;

  Tensor& tensor(int32_t i) { return tensors[static_cast<size_t>(i)]; }
  const Tensor& tensor(int32_t i) const { return tensors[static_cast<size_t>(i)]; }
};

// The name of an operator in the format, such as "CONV_2D"; empty if it is none of Op.
std::string_view name_of(Op op);
// Returns all operators of Op.
std::span<const Op> all_ops();

// Returns the file. Fails with P601 if it would have 2 GB or more, which the format cannot have.
Result<std::vector<std::byte>> encode(const Model& model);
// Writes an encoded model beside `path` and then renames it.
Status write_lite(std::span<const std::byte> file, const std::string& path);

// Reads a file that may come from a stranger: every offset, index, shape and size is checked, and the operators are in
// an order in which they can run. Fails with P205 if it holds operators or types that are not among those above (one
// error lists all), with P203 if it is damaged. `name` is the file's name in messages.
Result<Model> decode(std::span<const std::byte> file, const std::string& name);
Result<Model> read_lite(const std::string& path);

}  // namespace plimsoll::engine::lite
