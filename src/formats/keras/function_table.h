// The functions of TensorFlow that have a counterpart in Keras 3, with the names of their arguments on both sides.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::engine {

struct Target {
  const char* module;
  const char* class_name;
};
inline constexpr Target kReshapeLayer{"keras.layers", "Reshape"};
bool is_operation(const Target& target);  // of keras.ops, and no layer

// A call of an operation or a layer: its configuration, and its arguments by position. An argument {"step": i} is the
// result of the i-th call in a list.
inline constexpr const char* kStep = "step";
struct OperationCall {
  Target target;
  nlohmann::json config = nlohmann::json::object();
  std::vector<nlohmann::json> arguments;
  size_t rank = 0;  // of the tensors, where the operation reads it from the file; 0: it does not
};

// Returns the calls that together compute `function` of its first argument and the named ones; nullopt if there are
// none. Tensors among the arguments are in Keras 2's form.
std::optional<std::vector<OperationCall>> counterpart(const std::string& function, const nlohmann::json& first,
                                                      std::map<std::string, nlohmann::json> named);

}  // namespace plimsoll::engine
