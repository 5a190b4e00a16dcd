// The graph of Python objects in a checkpoint: which tensor belongs to which variable of which layer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

struct CheckpointObject {
  std::map<std::string, size_t, std::less<>> children;  // by the name of the attribute that holds them
  std::string tensor;                                   // a variable's name in the checkpoint, else ""
  struct Slot {
    size_t variable = 0;  // the variable that the state belongs to
    std::string name;     // "m", "momentum"
    size_t state = 0;
  };
  std::vector<Slot> slots;  // of an optimizer up to Keras 2.10
};

class ObjectGraph {
 public:
  // Parses a TrackableObjectGraph. Every index in the result is valid. Fails with P213.
  static Result<ObjectGraph> parse(const std::string& text, const std::string& label);

  // Returns the object that `names` lead to from `from`; null if one of them does not exist.
  const CheckpointObject* find(const CheckpointObject& from, std::initializer_list<std::string_view> names) const;
  const CheckpointObject& root() const { return objects_.front(); }
  const CheckpointObject& object(size_t index) const { return objects_[index]; }
  // Returns the tensors of the variables in a list object, whose children are "0", "1", ...
  std::vector<std::string> list(const CheckpointObject* object) const;

 private:
  std::vector<CheckpointObject> objects_;
};

}  // namespace plimsoll::engine
