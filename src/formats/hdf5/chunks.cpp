// Chunked datasets: the indices that locate the chunks, and the filters applied to them.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/checked.h"
#include "formats/file/inflate.h"
#include "formats/hdf5/elements.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

struct Chunk {
  std::vector<int64_t> origin;  // the index of its first element
  uint64_t address = kHdf5Nowhere;
  uint64_t bytes = 0;    // the stored size
  uint32_t skipped = 0;  // bit i is set if filter i was not applied
};

tl::unexpected<Error> damaged_chunk(const Hdf5Reader& reader) {
  return reader.damaged("a chunk of a dataset is damaged");
}

Result<std::vector<std::byte>> inflate_chunk(const Hdf5Reader& reader, std::vector<std::byte> packed, size_t most) {
  std::vector<std::byte> out(most);
  const auto inflater = Inflater::create(DeflateWrapper::kZlib);
  if (!inflater) return fail(ErrorCode::kOutOfMemory, "no memory to unpack a chunk of a dataset");
  size_t read = 0, written = 0;
  for (;;) {
    const auto step = inflater->step(std::span(packed).subspan(read), std::span(out).subspan(written));
    read += step.used;
    written += step.made;
    if (step.state == Inflater::State::kEnd) break;
    const bool stuck = step.used == 0 && step.made == 0;
    if (step.state == Inflater::State::kDamaged || stuck) return damaged_chunk(reader);
  }
  out.resize(written);
  return out;
}

// In shuffled data, byte 0 of all elements comes first, then byte 1 of all elements. Bytes of an incomplete element
// come last.
std::vector<std::byte> unshuffle(const std::vector<std::byte>& shuffled, size_t element) {
  const size_t count = element == 0 ? 0 : shuffled.size() / element;
  std::vector<std::byte> out(shuffled);
  for (size_t byte = 0; byte < element && count > 0; ++byte)
    for (size_t i = 0; i < count; ++i) out[i * element + byte] = shuffled[byte * count + i];
  return out;
}

Result<std::vector<std::byte>> unpack(const Hdf5Reader& reader, const Hdf5Dataset& dataset, const Chunk& chunk) {
  constexpr size_t kFletcherBytes = 4;
  const auto whole = static_cast<size_t>(dataset.chunk_bytes);
  // Deflating incompressible data makes it slightly larger.
  if (chunk.bytes > whole + whole / 8 + 1024) return damaged_chunk(reader);
  std::vector<std::byte> data(static_cast<size_t>(chunk.bytes));
  PLIMSOLL_TRY(reader.elements(chunk.address, data));
  for (size_t i = dataset.filters.size(); i-- > 0;) {
    if (i < 32 && (chunk.skipped >> i & 1) != 0) continue;
    const auto& step = dataset.filters[i];
    if (step.filter == Hdf5Filter::kDeflate) {
      PLIMSOLL_ASSIGN(data, inflate_chunk(reader, std::move(data), whole + kFletcherBytes));
    } else if (step.filter == Hdf5Filter::kShuffle) {
      data = unshuffle(data, step.parameter);
    } else {  // the chunk's checksum; it is not verified, see reader.h
      if (data.size() < kFletcherBytes) return damaged_chunk(reader);
      data.resize(data.size() - kFletcherBytes);
    }
  }
  if (data.size() != whole) return damaged_chunk(reader);
  return data;
}

// Copies a chunk row by row and drops the parts outside the dataset. If a chunk is as wide as the dataset, all its rows
// are copied as one.
Status place_chunk(const Hdf5Dataset& dataset, const Chunk& chunk, std::span<const std::byte> data,
                   const Hdf5Place& place) {
  const size_t rank = dataset.shape.size();
  std::vector<int64_t> extent(rank), index(rank, 0);
  for (size_t d = 0; d < rank; ++d) extent[d] = std::min(dataset.chunk[d], dataset.shape[d] - chunk.origin[d]);
  size_t row = rank - 1;  // the first dimension that is part of a contiguous row
  int64_t row_bytes = dataset.element.bytes * extent[row];
  while (row > 0 && dataset.chunk[row] == dataset.shape[row]) row_bytes *= extent[--row];
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < rank; ++d) {
      from = from * dataset.chunk[d] + index[d];
      to = to * dataset.shape[d] + chunk.origin[d] + index[d];
    }
    const auto first = static_cast<size_t>(from * dataset.element.bytes);
    PLIMSOLL_TRY(place(to * dataset.element.bytes, data.subspan(first, static_cast<size_t>(row_bytes))));
    size_t d = row;
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return {};
  }
}

class ChunkReader {
 public:
  ChunkReader(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place)
      : reader_(reader), dataset_(dataset), place_(place) {
    for (size_t d = 0; d < dataset.shape.size(); ++d) {
      grid_.push_back((dataset.shape[d] - 1) / dataset.chunk[d] + 1);
      chunks_ *= grid_.back();  // cannot overflow: check_chunks() bounds the product with the chunk size
    }
  }

  Status read() {
    switch (dataset_.storage) {
      case Hdf5Storage::kChunkTree:
        return walk_tree();
      case Hdf5Storage::kFixedArray:
        return walk_array();
      case Hdf5Storage::kSingleChunk: {
        const bool filtered = dataset_.single_bytes > 0;
        return take(0, dataset_.address, filtered ? dataset_.single_bytes : whole(), dataset_.single_mask);
      }
      default: {
        for (int64_t i = 0; i < chunks_; ++i) {
          const auto at = checked_add(dataset_.address, static_cast<uint64_t>(i) * whole());
          PLIMSOLL_TRY(take(i, at.value_or(kHdf5Nowhere - 1), whole(), 0));
        }
        return {};
      }
    }
  }

 private:
  uint64_t whole() const { return static_cast<uint64_t>(dataset_.chunk_bytes); }

  // Adds a chunk by its number in row-major order.
  Status take(int64_t number, uint64_t address, uint64_t bytes, uint32_t skipped) {
    Chunk chunk{std::vector<int64_t>(grid_.size()), address, bytes, skipped};
    for (size_t d = grid_.size(); d-- > 0; number /= grid_[d]) chunk.origin[d] = number % grid_[d] * dataset_.chunk[d];
    return take(chunk);
  }

  Status take(const Chunk& chunk) {
    if (chunk.address == kHdf5Nowhere) return {};
    if (++taken_ > chunks_) return reader_.damaged("a dataset has more chunks than fit its shape");
    PLIMSOLL_ASSIGN(const auto data, unpack(reader_, dataset_, chunk));
    return place_chunk(dataset_, chunk, data, place_);
  }

  // Walks a B-tree of version 1 with a work list instead of recursion. Every node is visited once.
  Status walk_tree() {
    const auto& region = reader_.region();
    const size_t rank = dataset_.shape.size();
    const size_t key_bytes = 8 + 8 * (rank + 1), pair = key_bytes + region.address_bytes;
    const size_t head_bytes = 8 + 2 * region.address_bytes;
    std::vector<uint64_t> pending = {dataset_.address};
    std::unordered_set<uint64_t> visited;
    while (!pending.empty()) {
      const uint64_t address = pending.back();
      pending.pop_back();
      if (!visited.insert(address).second) return reader_.damaged("a B-tree's nodes form a cycle");
      PLIMSOLL_ASSIGN(const auto head, reader_.block(address, head_bytes, "B-tree node"));
      Hdf5Cursor start(head);
      constexpr int kChunks = 1;
      const bool is_node = start.signature("TREE") && start.u8() == kChunks;
      const bool leaf = start.u8() == 0;
      const uint64_t used = start.u16();
      if (!is_node) return reader_.damaged(fmt::format("there is no B-tree node at byte {}", address));
      PLIMSOLL_ASSIGN(const auto body, reader_.block(address + head_bytes, used * pair, "B-tree node"));
      Hdf5Cursor cursor(body);
      for (uint64_t i = 0; i < used; ++i) {
        PLIMSOLL_ASSIGN(const auto chunk, take_key(cursor));
        if (!leaf)
          pending.push_back(chunk.address);
        else if (!chunk.origin.empty())
          PLIMSOLL_TRY(take(chunk));
      }
    }
    return {};
  }

  // Reads a key and its child. The origin is empty for a chunk outside the dataset, which remains if the dataset was
  // shrunk.
  Result<Chunk> take_key(Hdf5Cursor& cursor) {
    Chunk chunk;
    chunk.bytes = cursor.u32();
    chunk.skipped = cursor.u32();
    bool inside = true;
    for (size_t d = 0; d < dataset_.shape.size(); ++d) {
      const uint64_t origin = cursor.number(8);
      if (origin % static_cast<uint64_t>(dataset_.chunk[d]) != 0) return damaged_chunk(reader_);
      inside = inside && origin < static_cast<uint64_t>(dataset_.shape[d]);
      chunk.origin.push_back(static_cast<int64_t>(origin));
    }
    cursor.skip(8);
    chunk.address = reader_.region().address(cursor);
    if (!cursor.ok()) return damaged_chunk(reader_);
    if (!inside) chunk.origin.clear();
    return chunk;
  }

  // A fixed array has one entry per chunk. Large arrays are stored in pages after a bit map.
  Status walk_array() {
    const auto& region = reader_.region();
    PLIMSOLL_ASSIGN(const auto head,
                    reader_.block(dataset_.address, 8 + region.length_bytes + region.address_bytes, "fixed array"));
    Hdf5Cursor cursor(head);
    const bool is_array = cursor.signature("FAHD") && cursor.u8() == 0;
    const bool filtered = cursor.u8() == 1;
    const size_t entry = cursor.u8(), page_bits = cursor.u8();
    const uint64_t entries = region.length(cursor), block = region.address(cursor);
    const size_t least = region.address_bytes + (filtered ? 5 : 0);
    if (!is_array || !cursor.ok() || entry < least || entry > least + 7 || page_bits > 24)
      return reader_.damaged("a fixed array of chunks is damaged");
    if (block == kHdf5Nowhere) return {};
    const uint64_t per_page = uint64_t{1} << page_bits;
    const auto total = std::min<uint64_t>(entries, static_cast<uint64_t>(chunks_));
    const uint64_t before = 6 + region.address_bytes;
    if (entries <= per_page) return take_entries(block + before, 0, total, entry, filtered);
    const uint64_t pages = (entries - 1) / per_page + 1, map_bytes = (pages - 1) / 8 + 1;
    PLIMSOLL_ASSIGN(const auto made, reader_.block(block + before, map_bytes, "fixed array"));
    constexpr uint64_t kChecksum = 4;
    uint64_t at = block + before + map_bytes + kChecksum;
    for (uint64_t page = 0; page * per_page < total; ++page, at += per_page * entry + kChecksum) {
      if ((made[page / 8] & (std::byte{0x80} >> page % 8)) == std::byte{0}) continue;
      const uint64_t first = page * per_page;
      PLIMSOLL_TRY(take_entries(at, first, std::min(per_page, total - first), entry, filtered));
    }
    return {};
  }

  Status take_entries(uint64_t address, uint64_t first, uint64_t count, size_t entry, bool filtered) {
    const auto& region = reader_.region();
    const auto bytes = checked_multiply<uint64_t>(count, entry);
    PLIMSOLL_ASSIGN(const auto entries, reader_.block(address, bytes.value_or(kHdf5Nowhere), "fixed array"));
    Hdf5Cursor cursor(entries);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t chunk = region.address(cursor);
      const uint64_t stored = filtered ? cursor.number(entry - region.address_bytes - 4) : whole();
      const uint32_t skipped = filtered ? cursor.u32() : 0;
      if (!filtered) cursor.skip(entry - region.address_bytes);
      if (!cursor.ok()) return damaged_chunk(reader_);
      PLIMSOLL_TRY(take(static_cast<int64_t>(first + i), chunk, stored, skipped));
    }
    return {};
  }

  Hdf5Reader& reader_;
  const Hdf5Dataset& dataset_;
  const Hdf5Place& place_;
  std::vector<int64_t> grid_;
  int64_t chunks_ = 1, taken_ = 0;
};

}  // namespace

Status read_chunks(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place) {
  if (dataset.bytes == 0) return {};
  return ChunkReader(reader, dataset, place).read();
}

}  // namespace plimsoll::engine
