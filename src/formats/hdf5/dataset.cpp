#include "formats/hdf5/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "formats/file/array_source.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// Sets `unreadable` if it is still empty, so that the first reason found is reported.
void refuse(Hdf5Dataset& dataset, std::string reason) {
  if (dataset.unreadable.empty()) dataset.unreadable = std::move(reason);
}

std::optional<int64_t> product(const std::vector<int64_t>& dims, int64_t factor) {
  std::optional<int64_t> result = factor;
  for (const int64_t dim : dims) result = result ? checked_multiply(*result, dim) : result;
  return result && *result <= int64_t{1} << 62 ? result : std::nullopt;
}

Status parse_dataspace(const Hdf5Reader& reader, std::span<const std::byte> body, Hdf5Dataset& dataset) {
  Hdf5Cursor cursor(body);
  const int version = cursor.u8();
  const int rank = cursor.u8();
  cursor.skip(1);
  constexpr int kNull = 2;
  const int kind = version == 2 ? cursor.u8() : 0;
  if (version == 1) cursor.skip(5);
  if (version != 1 && version != 2)
    return refuse(dataset, fmt::format("its dataspace has the unsupported version {}", version)), Status{};
  if (rank > limits::kHdf5Rank)
    return reader.damaged(fmt::format("a dataset has {} dimensions; at most {} are allowed", rank, limits::kHdf5Rank));
  if (kind == kNull) refuse(dataset, "it has no elements");
  for (int i = 0; i < rank; ++i) {
    const uint64_t dim = reader.region().length(cursor);
    if (dim > static_cast<uint64_t>(INT64_MAX)) refuse(dataset, "its shape is too large");
    dataset.shape.push_back(static_cast<int64_t>(std::min<uint64_t>(dim, INT64_MAX)));
  }
  if (!cursor.ok()) return reader.damaged("a dataspace message is truncated");
  return {};
}

Status parse_chunk_shape(const Hdf5Reader& reader, Hdf5Cursor& cursor, int rank, size_t width, Hdf5Dataset& dataset) {
  // The element size is stored last, like a further dimension.
  for (int i = 0; i + 1 < rank; ++i) dataset.chunk.push_back(static_cast<int64_t>(cursor.number(width)));
  const uint64_t element = cursor.number(width);
  if (!cursor.ok()) return reader.damaged("a layout message is truncated");
  const bool positive = std::ranges::all_of(dataset.chunk, [](int64_t dim) { return dim > 0; });
  if (dataset.chunk.size() != dataset.shape.size() || !positive ||
      element != static_cast<uint64_t>(dataset.element.bytes))
    return reader.damaged("a dataset's chunks do not match its shape or its element size");
  return {};
}

Status parse_new_chunks(const Hdf5Reader& reader, Hdf5Cursor& cursor, Hdf5Dataset& dataset) {
  const auto& region = reader.region();
  const uint8_t flags = cursor.u8();
  const int rank = cursor.u8();
  const size_t width = cursor.u8();
  PLIMSOLL_TRY(parse_chunk_shape(reader, cursor, rank, width, dataset));
  enum Index { kSingle = 1, kImplicit = 2, kFixedArray = 3 };
  constexpr uint8_t kFilteredSingle = 2;
  switch (const int index = cursor.u8()) {
    case kSingle:
      dataset.storage = Hdf5Storage::kSingleChunk;
      if ((flags & kFilteredSingle) != 0) {
        dataset.single_bytes = region.length(cursor);
        dataset.single_mask = cursor.u32();
      }
      break;
    case kImplicit:
      dataset.storage = Hdf5Storage::kImplicitChunks;
      break;
    case kFixedArray:
      dataset.storage = Hdf5Storage::kFixedArray;
      cursor.skip(1);
      break;
    default:
      refuse(dataset, fmt::format("its chunks use an unsupported index of type {}", index));
      return {};
  }
  dataset.address = region.address(cursor);
  return {};
}

Status parse_layout(const Hdf5Reader& reader, std::span<const std::byte> body, Hdf5Dataset& dataset) {
  const auto& region = reader.region();
  Hdf5Cursor cursor(body);
  const int version = cursor.u8();
  if (version < 3 || version > 4)
    return refuse(dataset, fmt::format("its layout has the unsupported version {}", version)), Status{};
  enum Class { kCompact = 0, kContiguous = 1, kChunked = 2 };
  switch (cursor.u8()) {
    case kCompact:
      dataset.storage = Hdf5Storage::kCompact;
      dataset.compact = cursor.bytes(cursor.u16());
      break;
    case kContiguous:
      dataset.storage = Hdf5Storage::kContiguous;
      dataset.address = region.address(cursor);
      break;
    case kChunked:
      dataset.storage = Hdf5Storage::kChunkTree;
      if (version == 4) {
        PLIMSOLL_TRY(parse_new_chunks(reader, cursor, dataset));
      } else {
        const int rank = cursor.u8();
        dataset.address = region.address(cursor);
        PLIMSOLL_TRY(parse_chunk_shape(reader, cursor, rank, 4, dataset));
      }
      break;
    default:
      refuse(dataset, "its elements lie in another file");  // a virtual dataset
      break;
  }
  if (!cursor.ok()) return reader.damaged("a layout message is truncated");
  return {};
}

Status parse_filters(const Hdf5Reader& reader, std::span<const std::byte> body, Hdf5Dataset& dataset) {
  Hdf5Cursor cursor(body);
  const int version = cursor.u8();
  const int count = cursor.u8();
  if (version != 1 && version != 2)
    return refuse(dataset, fmt::format("its filters have the unsupported version {}", version)), Status{};
  if (version == 1) cursor.skip(6);
  for (int i = 0; i < count && cursor.ok(); ++i) {
    const unsigned id = cursor.u16();
    uint64_t name = version == 1 || id >= 256 ? cursor.u16() : 0;
    cursor.skip(2);
    const uint64_t parameters = cursor.u16();
    if (version == 1) name = (name + 7) / 8 * 8;
    cursor.skip(name);
    const uint32_t first = parameters > 0 ? cursor.u32() : 0;
    if (parameters > 1) cursor.skip(4 * (parameters - 1));
    if (version == 1 && parameters % 2 == 1) cursor.skip(4);
    const auto filter = static_cast<Hdf5Filter>(id);
    const bool known = id >= 1 && id <= 3;
    const bool twice = std::ranges::find(dataset.filters, filter, &Hdf5FilterStep::filter) != dataset.filters.end();
    if (!known || twice) return refuse(dataset, fmt::format("it uses the unsupported filter {}", id)), Status{};
    dataset.filters.push_back({filter, first});
  }
  if (!cursor.ok()) return reader.damaged("a filter message is truncated");
  return {};
}

// Reads the value of elements that were never written. If there are two messages, the newer kind is used.
Status parse_fill(const Hdf5Reader& reader, const Hdf5Header& header, Hdf5Dataset& dataset) {
  const auto* message = header.find(Hdf5MessageType::kFillValue);
  const bool old = message == nullptr;
  if (old) message = header.find(Hdf5MessageType::kOldFillValue);
  if (message == nullptr || message->shared) return {};
  Hdf5Cursor cursor(message->body);
  if (!old) {
    const int version = cursor.u8();
    const uint8_t flags = version == 3 ? cursor.u8() : 0;
    if (version < 3) cursor.skip(2);
    const bool defined = version == 3 ? (flags & 0x20) != 0 : cursor.u8() != 0 || version == 1;
    if (!defined || version > 3) return {};
  }
  const uint64_t size = cursor.u32();
  dataset.fill = cursor.bytes(size);
  if (!cursor.ok()) return reader.damaged("a fill value message is truncated");
  if (size != 0 && size != static_cast<uint64_t>(dataset.element.bytes))
    return reader.damaged("a fill value and an element have different sizes");
  return {};
}

// Limits the cost of reading the chunks, whatever their index says.
void check_chunks(Hdf5Dataset& dataset) {
  const auto bytes = product(dataset.chunk, dataset.element.bytes);
  if (dataset.chunk.empty()) return refuse(dataset, "it is a scalar stored in chunks");
  if (!bytes || *bytes > limits::kHdf5ChunkBytes)
    return refuse(dataset, fmt::format("its chunks are larger than {}", format_bytes(limits::kHdf5ChunkBytes)));
  dataset.chunk_bytes = *bytes;
  std::optional<int64_t> all = *bytes;
  for (size_t i = 0; i < dataset.chunk.size(); ++i) {
    const int64_t dim = dataset.shape[i];
    const int64_t count = dim / dataset.chunk[i] + (dim % dataset.chunk[i] != 0 ? 1 : 0);
    all = all ? checked_multiply(*all, count) : all;
  }
  // Chunks at the edges extend past the dataset, but at most by half in each of a few dimensions.
  const auto most = checked_multiply<int64_t>(dataset.bytes, 32);
  if (!all || !most || *all - limits::kHdf5ChunkBytes > *most)
    return refuse(dataset, "its chunks are far larger than the dataset");
  dataset.unpacked_bytes = *all;
}

}  // namespace

bool Hdf5Dataset::can_be_copied() const {
  return unreadable.empty() && element.complete &&
         element.datatype.size() + fill.size() <= static_cast<size_t>(limits::kHdf5CopiedTypeBytes);
}

Result<Hdf5Dataset> describe_dataset(Hdf5Reader& reader, const Hdf5Header& header) {
  using enum Hdf5MessageType;
  Hdf5Dataset dataset;
  for (const auto type : {kDataspace, kDatatype, kLayout}) {
    const auto* message = header.find(type);
    if (message == nullptr) return reader.damaged("a dataset lacks its shape, its type or its layout");
    if (!message->shared) continue;
    dataset.unreadable = "its shape or its type is stored elsewhere in the file";  // such as a "named datatype"
    return dataset;
  }
  PLIMSOLL_TRY(parse_dataspace(reader, header.find(kDataspace)->body, dataset));
  PLIMSOLL_ASSIGN(dataset.element, parse_datatype(reader, header.find(kDatatype)->body));
  if (dataset.element.opaque && dataset.element.bytes == size_of(DType::kBFloat16)) {
    PLIMSOLL_ASSIGN(const bool marked, is_marked_bfloat16(reader, header));
    if (marked) dataset.element.dtype = DType::kBFloat16;
  }
  const auto bytes = product(dataset.shape, dataset.element.bytes);
  if (!bytes) refuse(dataset, fmt::format("the shape {} is too large", dims_text(dataset.shape)));
  dataset.bytes = bytes.value_or(0);
  if (header.find(kExternalFiles) != nullptr) refuse(dataset, "its elements lie in another file");
  PLIMSOLL_TRY(parse_layout(reader, header.find(kLayout)->body, dataset));
  if (const auto* filters = header.find(kFilters); filters != nullptr && !filters->shared)
    PLIMSOLL_TRY(parse_filters(reader, filters->body, dataset));
  PLIMSOLL_TRY(parse_fill(reader, header, dataset));
  if (dataset.unreadable.empty() && dataset.is_chunked()) check_chunks(dataset);
  if (dataset.storage == Hdf5Storage::kCompact && dataset.unreadable.empty() &&
      static_cast<int64_t>(dataset.compact.size()) < dataset.bytes)
    return reader.damaged("a dataset has fewer elements than its shape says");
  return dataset;
}

}  // namespace plimsoll::engine
