#include "formats/hdf5/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/checked.h"

namespace plimsoll::engine {
namespace {

// Returns the number of bytes that hold numbers up to `largest`.
size_t width_of(uint64_t largest) {
  return largest == 0 ? 1 : (static_cast<size_t>(std::bit_width(largest)) - 1) / 8 + 1;
}

// The heap's blocks form a "doubling table" with rows of `width` blocks. The first two rows have blocks of the starting
// size, and each later row has blocks of twice the previous size. Blocks above the largest direct size are indirect:
// they are tables themselves.
class FractalHeap {
 public:
  static Result<FractalHeap> read(Hdf5Reader& reader, uint64_t address) {
    const auto& region = reader.region();
    PLIMSOLL_ASSIGN(const auto bytes,
                    reader.block(address, 22 + 12 * region.length_bytes + 3 * region.address_bytes, "fractal heap"));
    Hdf5Cursor cursor(bytes);
    const bool is_heap = cursor.signature("FRHP") && cursor.u8() == 0;
    FractalHeap heap(reader);
    heap.id_bytes_ = cursor.u16();
    const uint16_t filter_bytes = cursor.u16();
    cursor.skip(1);
    const uint64_t largest_object = cursor.u32();
    cursor.skip(region.length_bytes + region.address_bytes);  // huge objects
    cursor.skip(region.length_bytes + region.address_bytes);  // free space
    cursor.skip(8 * region.length_bytes);                     // counts
    heap.width_ = cursor.u16();
    heap.start_ = region.length(cursor);
    heap.largest_direct_ = region.length(cursor);
    const uint64_t heap_bits = cursor.u16();
    cursor.skip(2);
    heap.root_ = region.address(cursor);
    heap.root_rows_ = cursor.u16();
    if (!is_heap || !cursor.ok()) return reader.damaged(fmt::format("there is no fractal heap at byte {}", address));
    if (filter_bytes != 0) return reader.damaged("its links or attributes are compressed");
    const bool sane = heap.width_ > 0 && std::has_single_bit(heap.width_) && std::has_single_bit(heap.start_) &&
                      std::has_single_bit(heap.largest_direct_) && heap.start_ <= heap.largest_direct_ &&
                      heap.largest_direct_ <= uint64_t{1} << 32 && heap_bits > 0 && heap_bits <= 62;
    if (!sane) return reader.damaged("a fractal heap is damaged");
    heap.offset_bytes_ = (heap_bits + 7) / 8;
    heap.size_bytes_ = std::min(width_of(heap.largest_direct_), width_of(largest_object));
    return heap;
  }

  size_t id_bytes() const { return id_bytes_; }

  // Returns whether the object lies in a block of the heap. Only very long objects do not.
  static bool is_managed(std::span<const std::byte> id) {
    return !id.empty() && (id[0] & std::byte{0xf0}) == std::byte{0};
  }

  // Returns the object with this heap ID. Its bytes lie in one block.
  Result<std::vector<std::byte>> object(std::span<const std::byte> id) const {
    Hdf5Cursor cursor(id);
    cursor.skip(1);
    const uint64_t offset = cursor.number(offset_bytes_), size = cursor.number(size_bytes_);
    if (!cursor.ok() || !is_managed(id))
      return reader_.damaged("a link or an attribute is stored in an unsupported way");
    return object_at(offset, size);
  }

 private:
  explicit FractalHeap(Hdf5Reader& reader) : reader_(reader) {}

  Result<std::vector<std::byte>> object_at(uint64_t offset, uint64_t size) const {
    uint64_t block = root_, block_bytes = start_;
    uint64_t rows = root_rows_;  // 0: a direct block
    while (rows > 0) {
      const uint64_t row_bytes = width_ * start_;  // size of row 0 and of row 1
      const uint64_t doublings = static_cast<uint64_t>(std::bit_width(offset / row_bytes));
      const uint64_t row = doublings;
      if (row >= rows || doublings > 62) return reader_.damaged("a link or an attribute lies outside its heap");
      block_bytes = row == 0 ? start_ : start_ << (row - 1);
      if (row > 0 && block_bytes >> (row - 1) != start_) return reader_.damaged("a fractal heap is damaged");
      const uint64_t row_begin = row == 0 ? 0 : row_bytes << (row - 1);
      const uint64_t column = (offset - row_begin) / block_bytes;
      offset -= row_begin + column * block_bytes;
      const auto& region = reader_.region();
      const uint64_t before = 5 + region.address_bytes + offset_bytes_;
      const uint64_t entry = before + (row * width_ + column) * region.address_bytes;
      const auto place = checked_add(block, entry);
      if (!place) return reader_.damaged("a fractal heap is damaged");
      PLIMSOLL_ASSIGN(const auto pointer, reader_.block(*place, region.address_bytes, "indirect block"));
      Hdf5Cursor cursor(pointer);
      block = region.address(cursor);
      // The loop ends because every step goes to a smaller block.
      rows = block_bytes <= largest_direct_ ? 0 : static_cast<uint64_t>(std::bit_width(block_bytes / row_bytes));
    }
    const auto place = checked_add(block, offset);
    if (!place || block == kHdf5Nowhere || offset > block_bytes || size > block_bytes - offset)
      return reader_.damaged("a link or an attribute lies outside its heap");
    return reader_.block(*place, size, "message");
  }

  Hdf5Reader& reader_;
  size_t id_bytes_ = 0, offset_bytes_ = 0, size_bytes_ = 0;
  uint64_t width_ = 0, start_ = 0, largest_direct_ = 0;
  uint64_t root_ = kHdf5Nowhere, root_rows_ = 0;
};

// The B-tree of names.
class NameIndex {
 public:
  NameIndex(Hdf5Reader& reader, const FractalHeap& heap, Hdf5Dense kind, const Hdf5TakeMessage& take)
      : reader_(reader), heap_(heap), kind_(kind), take_(take) {}

  Status walk(uint64_t address) {
    const auto& region = reader_.region();
    PLIMSOLL_ASSIGN(const auto bytes,
                    reader_.block(address, 18 + region.address_bytes + region.length_bytes, "B-tree header"));
    Hdf5Cursor cursor(bytes);
    const bool is_tree = cursor.signature("BTHD") && cursor.u8() == 0 && cursor.u8() == static_cast<int>(kind_);
    const uint64_t node_bytes = cursor.u32();
    record_bytes_ = cursor.u16();
    const size_t depth = cursor.u16();
    cursor.skip(2);
    const uint64_t root = region.address(cursor), root_records = cursor.u16();
    if (!is_tree || !cursor.ok()) return reader_.damaged(fmt::format("there is no B-tree at byte {}", address));
    if (record_bytes_ != before_id() + heap_.id_bytes() + after_id() || depth > 16 ||
        node_bytes < kNodeFrame + record_bytes_)
      return reader_.damaged("a B-tree of names is damaged");
    if (root == kHdf5Nowhere) return {};
    measure(node_bytes, depth);
    return walk_node(root, root_records, depth);
  }

 private:
  static constexpr size_t kNodeFrame = 10;  // signature, version, type, checksum

  // In a link's record the hash of the name comes before the ID. In an attribute's record the ID comes first, followed
  // by flags, the creation order and the hash.
  size_t before_id() const { return kind_ == Hdf5Dense::kLinks ? 4 : 0; }
  size_t after_id() const { return kind_ == Hdf5Dense::kLinks ? 0 : 9; }

  // The width of the counts in child pointers depends on how many records a node can hold.
  void measure(uint64_t node_bytes, size_t depth) {
    const uint64_t leaf_records = (node_bytes - kNodeFrame) / record_bytes_;
    count_bytes_ = width_of(leaf_records);
    total_bytes_ = {0};
    uint64_t most = leaf_records;
    for (size_t level = 1; level <= depth; ++level) {
      const uint64_t pointer = reader_.region().address_bytes + count_bytes_ + total_bytes_.back();
      const uint64_t records =
          node_bytes > kNodeFrame + pointer ? (node_bytes - kNodeFrame - pointer) / (record_bytes_ + pointer) : 0;
      const auto below = checked_multiply(records + 1, most);
      most = below ? checked_add(*below, records).value_or(UINT64_MAX) : UINT64_MAX;
      total_bytes_.push_back(width_of(most));
    }
  }

  // `depth` is at most 16, which bounds the recursion.
  Status walk_node(uint64_t address, uint64_t records, size_t depth) {  // NOLINT(misc-no-recursion)
    const auto& region = reader_.region();
    const size_t pointer = depth == 0 ? 0 : region.address_bytes + count_bytes_ + total_bytes_[depth - 1];
    const uint64_t bytes = 6 + records * record_bytes_ + (depth == 0 ? 0 : (records + 1) * pointer);
    PLIMSOLL_ASSIGN(const auto node, reader_.block(address, bytes, "B-tree node"));
    Hdf5Cursor cursor(node);
    if (!cursor.signature(depth == 0 ? "BTLF" : "BTIN"))
      return reader_.damaged(fmt::format("there is no B-tree node at byte {}", address));
    cursor.skip(2);
    for (uint64_t i = 0; i < records; ++i) {
      cursor.skip(before_id());
      const auto id = cursor.bytes(heap_.id_bytes());
      cursor.skip(after_id());
      // Too long to be the attribute we look for.
      if (kind_ == Hdf5Dense::kAttributes && !FractalHeap::is_managed(id)) continue;
      PLIMSOLL_ASSIGN(const auto message, heap_.object(id));
      PLIMSOLL_TRY(take_(message));
    }
    for (uint64_t i = 0; depth > 0 && i <= records; ++i) {
      const uint64_t child = region.address(cursor), count = cursor.number(count_bytes_);
      cursor.skip(total_bytes_[depth - 1]);
      PLIMSOLL_TRY(walk_node(child, count, depth - 1));
    }
    return {};
  }

  Hdf5Reader& reader_;
  const FractalHeap& heap_;
  Hdf5Dense kind_;
  const Hdf5TakeMessage& take_;
  size_t record_bytes_ = 0, count_bytes_ = 0;
  std::vector<size_t> total_bytes_;  // per level: width of the count of all records below a child; leaves have none
};

}  // namespace

Status read_dense(Hdf5Reader& reader, Hdf5Dense kind, std::span<const std::byte> info, const Hdf5TakeMessage& take) {
  Hdf5Cursor cursor(info);
  cursor.skip(1);
  const bool counted = (cursor.u8() & 1) != 0;
  if (counted) cursor.skip(kind == Hdf5Dense::kLinks ? 8 : 2);
  const uint64_t heap = reader.region().address(cursor), names = reader.region().address(cursor);
  if (!cursor.ok()) return reader.damaged("a link info or attribute info message is truncated");
  if (heap == kHdf5Nowhere) return {};
  PLIMSOLL_ASSIGN(const auto opened, FractalHeap::read(reader, heap));
  return NameIndex(reader, opened, kind, take).walk(names);
}

}  // namespace plimsoll::engine
