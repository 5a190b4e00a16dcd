// An object header. Its messages describe one object of an HDF5 file: a group or a dataset.
#pragma once

#include <vector>

#include "formats/hdf5/reader.h"

namespace plimsoll::engine {

enum class Hdf5MessageType : uint16_t {
  kDataspace = 0x0001,
  kLinkInfo = 0x0002,
  kDatatype = 0x0003,
  kOldFillValue = 0x0004,
  kFillValue = 0x0005,
  kLink = 0x0006,
  kExternalFiles = 0x0007,
  kLayout = 0x0008,
  kGroupInfo = 0x000a,
  kFilters = 0x000b,
  kAttribute = 0x000c,
  kContinuation = 0x0010,
  kSymbolTable = 0x0011,
  kAttributeInfo = 0x0015,
};

struct Hdf5Message {
  Hdf5MessageType type;
  bool shared = false;  // the body only says where the message is stored
  std::span<const std::byte> body;
};

struct Hdf5Header {
  std::vector<std::vector<std::byte>> blocks;  // the memory of the messages' bodies
  std::vector<Hdf5Message> messages;

  const Hdf5Message* find(Hdf5MessageType type) const;
  bool is_dataset() const { return find(Hdf5MessageType::kLayout) != nullptr; }
  bool is_group() const;
};

// Reads an object header of version 1 or 2 with all its continuation blocks.
Result<Hdf5Header> read_object_header(Hdf5Reader& reader, uint64_t address);

}  // namespace plimsoll::engine
