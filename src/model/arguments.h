// The arguments of one call in a Functional file: tensors, numbers, text, lists, slices and constant arrays, given by
// position or by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/config.h"

namespace plimsoll::engine {

// What the file says of a tensor that is passed to a call. The batch is dims[0].
struct FileTensor {
  std::vector<std::optional<int64_t>> dims;
  std::string dtype;
};

// Arguments as in the file, except that every tensor is replaced by {"tensor": i}, where i counts the tensors of this
// call: those of `positional` first, then those of `named`.
struct CallArguments {
  Json positional = Json::array();
  Json named = Json::object();
  std::vector<FileTensor> tensors;
};

Json tensor_placeholder(size_t index);
// Returns the index of a tensor of this call; nullopt if the argument is something else.
std::optional<size_t> tensor_index(const CallArguments& call, const Json& argument);

// A constant in a call: a Python number, a (nested) list of numbers, or an array.
struct Constant {
  enum class Type { kFloat, kInteger, kTruth } type = Type::kFloat;
  bool weak = false;  // a Python number, which takes the dtype of the tensors that it meets
  Shape shape;
  std::vector<double> values;
};
// Returns nullopt if the argument is no constant, has more elements than op `constant` takes, or cannot be represented
// exactly.
std::optional<Constant> read_constant(const Json& argument);

struct Slice {
  std::optional<int64_t> start, stop, step;
};
std::optional<Slice> read_slice(const Json& argument);  // {"class_name": "__slice__"}
bool is_ellipsis(const Json& argument);                 // {"class_name": "__ellipsis__"}

// Returns what a call passes beside its tensors, for layers that read only tensors: "mask=a tensor". Values that Keras
// replaces or ignores are not listed.
std::vector<std::string> extra_arguments(const CallArguments& call);

// Reads the arguments of a call, and remembers which were read, as Config does for a configuration.
class Arguments {
 public:
  Arguments(const CallArguments& call, std::string where, Issues& issues)
      : call_(&call), where_(std::move(where)), issues_(&issues) {}

  const CallArguments& call() const { return *call_; }
  // Returns the argument with this name or at this position; null if it is missing or None.
  const Json* value(const std::string& name, size_t position);
  std::optional<size_t> tensor(const Json& argument) const { return tensor_index(*call_, argument); }
  std::string shown(const Json& argument) const;  // for messages
  // Lists every argument that was not read. None counts as missing.
  void finish();

 private:
  const CallArguments* call_;
  std::string where_;
  Issues* issues_;
  std::set<size_t> positions_;
  std::set<std::string> names_;
};

}  // namespace plimsoll::engine
