// What the messages of a dataset's object header say: its shape, its element type, and where its elements lie.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "formats/hdf5/object_header.h"

namespace plimsoll::engine {

// The type of the elements as the file stores them.
struct Hdf5Element {
  std::optional<DType> dtype;  // none for types that are not ours
  int64_t bytes = 0;           // of one element
  bool big_endian = false;
  bool opaque = false;                  // bytes without a meaning, which an attribute may give them
  bool complete = false;                // the bytes say all: no part of an element lies elsewhere in the file
  std::span<const std::byte> datatype;  // the message itself
  std::string unreadable;               // why there is no dtype
};

enum class Hdf5Filter : uint16_t { kDeflate = 1, kShuffle = 2, kFletcher32 = 3 };

struct Hdf5FilterStep {
  Hdf5Filter filter;
  uint32_t parameter = 0;  // of shuffle: the size of an element
};

enum class Hdf5Storage { kCompact, kContiguous, kChunkTree, kSingleChunk, kImplicitChunks, kFixedArray };

struct Hdf5Dataset {
  std::vector<int64_t> shape;
  Hdf5Element element;
  int64_t bytes = 0;  // of all elements as the file stores them

  Hdf5Storage storage = Hdf5Storage::kContiguous;
  uint64_t address = kHdf5Nowhere;      // of the elements or of the index of chunks; nowhere: all are the fill value
  std::span<const std::byte> compact;   // the elements themselves
  std::vector<int64_t> chunk;           // the shape of a chunk
  int64_t chunk_bytes = 0;              // of one chunk, unpacked
  int64_t unpacked_bytes = 0;           // of all chunks that the shape has room for
  std::vector<Hdf5FilterStep> filters;  // in the order of writing
  uint64_t single_bytes = 0;            // of a single chunk that went through filters
  uint32_t single_mask = 0;
  std::span<const std::byte> fill;  // one element; empty: zeros

  std::string unreadable;  // empty, or why its elements cannot be had

  // Whether elements lie in the file at all; where none does, all are the fill value.
  bool is_allocated() const { return storage == Hdf5Storage::kCompact || address != kHdf5Nowhere; }
  // Whether elements mean the same in another file.
  bool can_be_copied() const;
  bool is_chunked() const { return storage != Hdf5Storage::kCompact && storage != Hdf5Storage::kContiguous; }
};

// Spans of the result lie in `header`. What is well-formed and not for us is `unreadable`; what is not well-formed is
// P213.
Result<Hdf5Dataset> describe_dataset(Hdf5Reader& reader, const Hdf5Header& header);

Result<Hdf5Element> parse_datatype(const Hdf5Reader& reader, std::span<const std::byte> message);

// Whether the attribute "dtype" says bfloat16: how Keras marks a type that HDF5 does not know. No other attribute's
// value is ever looked at.
Result<bool> is_marked_bfloat16(Hdf5Reader& reader, const Hdf5Header& header);

}  // namespace plimsoll::engine
