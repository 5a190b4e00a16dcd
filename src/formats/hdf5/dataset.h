// The contents of a dataset's object header: its shape, its element type, and where its elements lie.
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
  std::optional<DType> dtype;  // empty for types that Plimsoll does not have
  int64_t bytes = 0;           // size of one element
  bool big_endian = false;
  bool opaque = false;                  // bytes without a type of their own; an attribute may give the type
  bool complete = false;                // no part of an element lies elsewhere in the file
  std::span<const std::byte> datatype;  // the datatype message itself
  std::string unreadable;               // why there is no dtype
  bool fixed_text = false;              // text of `bytes` bytes, filled with zeros
  bool variable_text = false;           // the place of a text in a global heap
};

enum class Hdf5Filter : uint16_t { kDeflate = 1, kShuffle = 2, kFletcher32 = 3 };

struct Hdf5FilterStep {
  Hdf5Filter filter;
  uint32_t parameter = 0;  // for shuffle: the element size
};

enum class Hdf5Storage { kCompact, kContiguous, kChunkTree, kSingleChunk, kImplicitChunks, kFixedArray };

struct Hdf5Dataset {
  std::vector<int64_t> shape;
  Hdf5Element element;
  int64_t bytes = 0;  // size of all elements as stored in the file

  Hdf5Storage storage = Hdf5Storage::kContiguous;
  // Address of the elements or of the chunk index; nowhere: every element is the fill value.
  uint64_t address = kHdf5Nowhere;
  std::span<const std::byte> compact;   // the elements themselves
  std::vector<int64_t> chunk;           // the shape of a chunk
  int64_t chunk_bytes = 0;              // size of one uncompressed chunk
  int64_t unpacked_bytes = 0;           // size of all uncompressed chunks that fit the shape
  std::vector<Hdf5FilterStep> filters;  // in the order in which they were applied on writing
  uint64_t single_bytes = 0;            // size of a single chunk that is stored with filters
  uint32_t single_mask = 0;
  std::span<const std::byte> fill;  // one element; empty: zeros

  std::string unreadable;  // empty, or the reason why the elements cannot be read

  // Returns whether any elements are stored in the file. If not, every element is the fill value.
  bool is_allocated() const { return storage == Hdf5Storage::kCompact || address != kHdf5Nowhere; }
  // Returns whether the elements can be copied to another file without losing their meaning.
  bool can_be_copied() const;
  bool is_chunked() const { return storage != Hdf5Storage::kCompact && storage != Hdf5Storage::kContiguous; }
};

// The spans in the result point into `header`. A valid dataset of an unsupported kind gets `unreadable`; invalid
// structures fail with P213.
Result<Hdf5Dataset> describe_dataset(Hdf5Reader& reader, const Hdf5Header& header);

Result<Hdf5Element> parse_datatype(const Hdf5Reader& reader, std::span<const std::byte> message);

// Returns whether the attribute "dtype" is "bfloat16". Keras marks bfloat16 that way, because HDF5 does not have the
// type. No other attribute's value is read.
Result<bool> is_marked_bfloat16(Hdf5Reader& reader, const Hdf5Header& header);

}  // namespace plimsoll::engine
