// Attributes of groups and datasets. Only texts are read: Keras's mark of bfloat16, and what Keras's whole models in
// HDF5 say about themselves (model_config, layer_names, ...).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/hdf5/object_header.h"

namespace plimsoll::engine {

struct Hdf5Attribute {
  std::string_view name;
  std::span<const std::byte> datatype, dataspace, value;
};

// Parses an attribute message. Returns nullopt if its type or its shape is stored elsewhere, or if it is damaged.
std::optional<Hdf5Attribute> parse_attribute(std::span<const std::byte> message);

// Returns the texts in the attribute of that name: one if it is a scalar; nullopt if the object has no such attribute.
// An empty list of any type has no texts (NumPy's empty lists are numbers). Fails with P213 if the attribute holds
// anything else.
Result<std::optional<std::vector<std::string>>> read_text_attribute(Hdf5Reader& reader, const Hdf5Header& header,
                                                                    std::string_view name);

}  // namespace plimsoll::engine
