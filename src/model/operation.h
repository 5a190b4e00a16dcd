// Functions of keras.ops that a Functional model calls on tensors: keras.ops.sum(x), x + 1, a @ b, x[:, 1:].
//
// An operation is parsed into a body: a function that adds its nodes through an OpWriter. The shape rule is the same
// function, run on a scratch graph. So an operation is described once.
//
// Every tensor between layers has the batch as dimension 0. An operation that would move, split or reduce the batch
// couples samples, and is refused by name.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arguments.h"
#include "model/layer.h"

namespace plimsoll::engine {

// A tensor of the call, or a constant of the file, while nodes are added.
struct Operand {
  ValueId id = kNone;            // kNone: a number
  std::optional<double> number;  // a scalar constant, which is not in the graph yet
  TensorKind kind = TensorKind::kFloat;
  bool batched = true;  // dimension 0 is the batch; false for constants
  bool weak = false;    // a Python number: takes the dtype of what it meets
};
using Operands = std::vector<Operand>;

class OpWriter {
 public:
  // With `issues`, unsupported calls are listed. Without, the call has been checked before.
  OpWriter(const BuildCall& call, const std::string& where, Issues* issues)
      : call_(call), where_(where), issues_(issues) {}

  const BuildCall& call() const { return call_; }
  Operand input(size_t i) const;
  Operand constant(const Constant& constant);
  static Operand number(double value, TensorKind kind = TensorKind::kFloat);
  static Operand value(ValueId id, TensorKind kind = TensorKind::kFloat) { return {id, {}, kind, true, false}; }

  // Whether a tensor of the call has a batch. If none has, every axis is one of the tensor's own.
  bool has_batch() const;
  // The shape with the batch; [] for a number.
  std::vector<int64_t> dims(const Operand& a) const;
  size_t rank(const Operand& a) const { return dims(a).size(); }
  DType dtype(const Operand& a) const;

  // Records the first error and lists an unsupported call. Writing continues, with meaningless values.
  void fail(const std::string& what);
  void refuse(const std::string& what);
  const std::optional<Error>& error() const { return error_; }
  bool failed() const { return error_.has_value() || refused_; }

  // Conversions. Integers become floats of the variables' dtype, so that they are not rounded.
  TensorKind joint_kind(std::span<const Operand> list) const;
  DType joint_float(std::span<const Operand> list) const;  // dtype that Keras computes in when these meet
  Operand floats(const Operand& a, DType dtype);
  Operand floats(const Operand& a) { return floats(a, joint_float({&a, 1})); }
  Operand integers(const Operand& a);  // truncates
  Operand truths(const Operand& a);    // a != 0
  Operand as_kind(const Operand& a, TensorKind kind);
  Operands joint_floats(std::span<const Operand> list);  // all in the dtype of joint_float

  // Element-wise on floats of one dtype, with broadcasting. The result is a float.
  Operand unary(const std::string& op, const Operand& a, Attrs attrs = {});
  Operand binary(const std::string& op, const Operand& a, const Operand& b);
  Operand affine(const Operand& a, double scale, double offset);
  Operand add(const Operand& a, const Operand& b);
  Operand subtract(const Operand& a, const Operand& b);
  Operand multiply(const Operand& a, const Operand& b);
  Operand divide(const Operand& a, const Operand& b);
  Operand power(const Operand& a, const Operand& b);
  Operand invert(const Operand& a) { return affine(a, -1, 1); }  // not, for truth values
  Operand select(const Operand& condition, const Operand& a, const Operand& b);

  // Returns the broadcast shape of several operands. Records an error if there is none.
  std::vector<int64_t> joint_dims(std::span<const Operand> list);
  Operand broadcast(const Operand& a, const std::vector<int64_t>& dims);

  // Movement: any kind of elements.
  Operand move(const std::string& op, const Operand& a, Attrs attrs);  // one input, one output of another shape
  Operand reshape(const Operand& a, const std::vector<int64_t>& dims);
  Operand transpose(const Operand& a, const std::vector<int64_t>& perm);
  Operand slice(const Operand& a, size_t axis, int64_t begin, int64_t size);
  Operand strided_slice(const Operand& a, const std::vector<int64_t>& begin, const std::vector<int64_t>& size,
                        const std::vector<int64_t>& strides);
  Operand concat(const Operands& list, size_t axis);
  Operand gather(const Operand& a, const Operand& ids, size_t axis);

  // Reductions over sorted axes, of floats. Reduced axes keep the size 1 with `keep`.
  Operand sum(const Operand& a, const std::vector<size_t>& axes, bool keep);
  Operand mean(const Operand& a, const std::vector<size_t>& axes, bool keep);
  // op is "reduce_max", "reduce_min" or "reduce_prod"
  Operand reduce(const std::string& op, const Operand& a, const std::vector<size_t>& axes, bool keep);
  Operand without(const Operand& a, const std::vector<size_t>& axes);  // removes axes of size 1

  // Returns the number of a dimension. The batch is refused; nullopt after an error.
  std::optional<size_t> axis(int64_t axis, size_t rank);
  std::vector<ValueId> nodes(const std::string& op, std::vector<ValueId> inputs, Attrs attrs);
  ValueId materialize(const Operand& a, const std::vector<int64_t>& dims, DType dtype);
  ValueId id_of(const Operand& a);  // puts a number into the graph as a scalar

 private:
  const BuildCall& call_;
  const std::string& where_;
  Issues* issues_;
  std::optional<Error> error_;
  bool refused_ = false;
};

using OpBody = std::function<Operands(OpWriter&)>;

// An argument of an operation: a tensor of the call or a constant.
struct OpArgument {
  std::optional<size_t> tensor;
  Constant constant;

  Operand get(OpWriter& w) const { return tensor ? w.input(*tensor) : w.constant(constant); }
};

// Reads the configuration and the call of an operation.
class OpReader {
 public:
  explicit OpReader(Config& c) : config(c), arguments(c.call(), c.where(), c.issues()) {}

  Config& config;
  Arguments arguments;
  size_t outputs = 1;
  std::string half_cast;     // a half-precision dtype that the operation names
  bool makes_batch = false;  // its results have a batch, whatever its inputs are

  OpArgument operand(const std::string& name, size_t position);
  std::optional<OpArgument> optional_operand(const std::string& name, size_t position);
  std::vector<OpArgument> operands(const std::string& name, size_t position);  // a list of them
  void refuse(const std::string& what);
  void reject(const std::string& what);

  // Integers of the configuration, or of the call.
  std::optional<std::vector<int64_t>> integers(const Json* value, const std::string& key);
  // `axis`: nullopt means None, all axes. Lists and single numbers are both read.
  std::optional<std::vector<int64_t>> axes(const std::string& key);
  // `dtype` as a kind; nullopt if it is None. Dtypes that Plimsoll does not compute in are refused.
  std::optional<TensorKind> kind(const std::string& key);
  std::optional<TensorKind> kind_of_name(const std::string& dtype);
};

using OpParser = OpBody (*)(OpReader&);
struct OpClass {
  std::string_view name;
  OpParser parse;
};

// Returns the value, or one element of rank 1 for a scalar.
ValueId with_dimension(GraphBuilder& b, ValueId value);

// Returns the operation as a layer.
Layer operation_layer(Config& config, const std::function<OpBody(OpReader&)>& parse);

// Tables of class names, one per file.
std::span<const OpClass> selection_operations();
std::span<const OpClass> activation_operations();
std::span<const OpClass> reduction_operations();
std::span<const OpClass> statistics_operations();
std::span<const OpClass> shape_operations();
std::span<const OpClass> joining_operations();
std::span<const OpClass> indexing_operations();
std::span<const OpClass> linear_operations();
std::span<const OpClass> network_operations();
std::span<const OpClass> window_operations();
std::span<const OpClass> image_operations();
std::span<const OpClass> fourier_operations();
std::span<const OpClass> rearranging_operations();
std::span<const OpClass> loss_operations();
std::span<const OpClass> sequence_operations();
std::span<const OpClass> traced_operations();

// Element-wise functions, one row per class (operations_elementwise.cpp).
std::function<OpBody(OpReader&)> find_elementwise(std::string_view class_name);

}  // namespace plimsoll::engine
