// Reads calls in a Functional file: `inbound_nodes`, whose arguments are tensors identified by layer, call and output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/arguments.h"

namespace plimsoll::engine {

// A tensor by name, as in the file.
struct NamedTensor {
  std::string layer;
  int64_t node = 0, tensor = 0;
};

struct NodeArguments {
  std::vector<NamedTensor> tensors;  // in the order of CallArguments::tensors
  // The tensors of the argument `mask` of a layer: the mask of its first tensor, or one per tensor.
  std::vector<std::optional<NamedTensor>> masks;
  CallArguments call;
};

// Reads one element of `inbound_nodes`: Keras 3's {"args", "kwargs"}, or the older [["layer", 0, 0, {}], ...]. Returns
// nullopt if it is neither. `masks_apart`: the argument `mask` is read into `masks` if it holds tensors, and is not one
// of the call's arguments then. Functions of keras.ops take it as any other argument.
std::optional<NodeArguments> read_node(const Json& node, bool masks_apart);

// Reads `input_layers` and `output_layers`: one ["layer", 0, 0], a list of them, or a map by name. nullopt: none of
// these.
struct NamedPort {
  std::string key;  // the key in a map, else ""
  NamedTensor tensor;
};
std::optional<std::vector<NamedPort>> read_ports(const Json& ports);

}  // namespace plimsoll::engine
