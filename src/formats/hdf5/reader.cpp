#include "formats/hdf5/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/checked.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr uint64_t kLargestSuperblock = 96;

// Returns the position of `address` in the region; nullopt if it is nowhere or past the end of any file.
std::optional<int64_t> place(const Hdf5Region& region, uint64_t address) {
  if (address > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return checked_add(region.base, static_cast<int64_t>(address));
}

// A valid file's metadata is read once or twice. The second term is for very small files.
int64_t allowance(int64_t region_bytes) {
  const auto several = checked_multiply<int64_t>(region_bytes, 8);
  return std::min(limits::kHdf5MetadataBytes, several.value_or(limits::kHdf5MetadataBytes) + 64 * kKiB);
}

// The superblock lies at the start of the file or after a "user block", at 512 bytes times a power of two.
Result<int64_t> find_signature(const Hdf5Region& region) {
  for (int64_t at = 0; lies_within(at, static_cast<int64_t>(kSignature.size()), region.bytes);
       at = at == 0 ? 512 : at * 2) {
    std::array<std::byte, 8> found{};
    PLIMSOLL_TRY(region.file.pread_exact(region.offset + at, found));
    if (std::ranges::equal(found, bytes_of_text(kSignature))) return at;
    if (at > region.bytes / 2) break;
  }
  return bad_weights(region.label, "it is not an HDF5 file: it has no HDF5 signature");
}

}  // namespace

tl::unexpected<Error> bad_weights(const std::string& label, std::string_view what) {
  Error error{ErrorCode::kBadWeightsFile, fmt::format("{}: {}", label, what), {}, {}};
  return fail(std::move(error.remedy("save the model again; the HDF5 file is damaged or of an unsupported kind")));
}

Hdf5Reader::Hdf5Reader(const Hdf5Region& region)
    : region_(region), blocks_left_(limits::kHdf5Blocks), bytes_left_(allowance(region.bytes)) {}

Result<std::vector<std::byte>> Hdf5Reader::block(uint64_t address, uint64_t bytes, std::string_view what) {
  const auto begin = place(region_, address);
  const auto size = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
  if (!begin || !lies_within(*begin, size, region_.bytes))
    return damaged(fmt::format("{} of {} bytes at byte {} would lie outside the file's {} bytes", what, bytes, address,
                               region_.bytes));
  if (size > limits::kHdf5BlockBytes)
    return damaged(
        fmt::format("{} of {} is larger than {}", what, format_bytes(size), format_bytes(limits::kHdf5BlockBytes)));
  if (--blocks_left_ < 0 || size > bytes_left_)
    return damaged("its structures refer to each other more often than in a valid file");
  bytes_left_ -= size;
  std::vector<std::byte> result(static_cast<size_t>(size));
  PLIMSOLL_TRY(region_.file.pread_exact(region_.offset + *begin, result));
  return result;
}

Result<std::vector<std::byte>> Hdf5Reader::start_of(uint64_t address, uint64_t bytes, std::string_view what) {
  const auto begin = place(region_, address);
  if (!begin || *begin >= region_.bytes) return block(address, bytes, what);
  return block(address, std::min(bytes, static_cast<uint64_t>(region_.bytes - *begin)), what);
}

Result<bool> Hdf5Reader::is_mark(uint64_t heap, uint64_t index) {
  constexpr size_t kKept = 16;
  auto found = marks_.find(heap);
  if (found == marks_.end()) {
    PLIMSOLL_ASSIGN(auto marks, read_marks(heap));
    if (marks_.size() >= kKept) marks_.clear();
    found = marks_.emplace(heap, std::move(marks)).first;
  }
  return index < found->second.size() && found->second[static_cast<size_t>(index)];
}

// Returns the objects of a global heap, or the first `most` bytes of them.
Result<std::vector<std::byte>> Hdf5Reader::read_heap(uint64_t heap, Bytes most) {
  const uint64_t head_bytes = 8 + region_.length_bytes;
  PLIMSOLL_ASSIGN(const auto head, block(heap, head_bytes, "global heap"));
  Hdf5Cursor start(head);
  if (!start.signature("GCOL")) return damaged(fmt::format("there is no global heap at byte {}", heap));
  start.skip(4);
  const uint64_t size = std::min<uint64_t>(region_.length(start), static_cast<uint64_t>(most));
  if (size < head_bytes) return damaged("a global heap is damaged");
  return block(heap + head_bytes, size - head_bytes, "global heap");
}

namespace {

// Passes each object of a heap to `take`. The heap stores one object after the other, each preceded by its number and
// size.
template <typename Take>
void for_each_object(const Hdf5Region& region, std::span<const std::byte> objects, const Take& take) {
  const uint64_t head_bytes = 8 + region.length_bytes;
  Hdf5Cursor cursor(objects);
  while (cursor.left() >= head_bytes) {
    const size_t index = cursor.u16();
    cursor.skip(6);
    const uint64_t bytes = region.length(cursor);
    if (index == 0) break;  // free space after the last object
    const std::string_view text = cursor.text(bytes);
    if (!cursor.ok()) break;
    cursor.skip(std::min<uint64_t>((8 - bytes % 8) % 8, cursor.left()));
    take(index, text);
  }
}

}  // namespace

Result<std::vector<bool>> Hdf5Reader::read_marks(uint64_t heap) {
  PLIMSOLL_ASSIGN(const auto objects, read_heap(heap, limits::kHdf5HeapBytes));
  std::vector<bool> marks;
  for_each_object(region_, objects, [&](size_t index, std::string_view text) {
    if (text != kHdf5Mark) return;
    if (index >= marks.size()) marks.resize(index + 1);
    marks[index] = true;
  });
  return marks;
}

Result<std::string_view> Hdf5Reader::heap_text(uint64_t heap, uint64_t index) {
  if (heap_ != heap) {
    heap_.reset();
    heap_texts_.clear();
    PLIMSOLL_ASSIGN(heap_bytes_, read_heap(heap, limits::kHdf5BlockBytes));
    for_each_object(region_, heap_bytes_, [&](size_t number, std::string_view text) {
      if (number >= heap_texts_.size()) heap_texts_.resize(number + 1);
      heap_texts_[number] = text;
    });
    heap_ = heap;
  }
  if (index >= heap_texts_.size() || heap_texts_[static_cast<size_t>(index)].data() == nullptr)
    return damaged(fmt::format("the global heap at byte {} has no object {}", heap, index));
  return heap_texts_[static_cast<size_t>(index)];
}

Status Hdf5Reader::elements(uint64_t address, std::span<std::byte> out) const {
  const auto begin = place(region_, address);
  if (!begin || !lies_within(*begin, static_cast<int64_t>(out.size()), region_.bytes))
    return damaged(fmt::format("{} bytes of elements at byte {} would lie outside the file's {} bytes", out.size(),
                               address, region_.bytes));
  return region_.file.pread_exact(region_.offset + *begin, out);
}

Status read_superblock(Hdf5Region& region) {
  PLIMSOLL_ASSIGN(region.base, find_signature(region));
  Hdf5Reader reader(region);
  PLIMSOLL_ASSIGN(const auto bytes, reader.start_of(0, kLargestSuperblock, "superblock"));
  Hdf5Cursor cursor(bytes);
  cursor.skip(kSignature.size());
  const int version = cursor.u8();
  if (version > 3)
    return reader.damaged(fmt::format("its superblock has version {}; versions 0 to 3 are supported", version));
  const bool old = version < 2;
  if (old) cursor.skip(4);
  region.address_bytes = cursor.u8();
  region.length_bytes = cursor.u8();
  for (const size_t size : {region.address_bytes, region.length_bytes})
    if (size != 2 && size != 4 && size != 8)
      return reader.damaged(fmt::format("its addresses have {} bytes and its lengths {} bytes, which is not supported",
                                        region.address_bytes, region.length_bytes));
  cursor.skip(1);
  if (old) cursor.skip(version == 0 ? 8 : 12);
  region.address(cursor);  // the base address; like the HDF5 library, we use the position of the signature instead
  region.address(cursor);
  const uint64_t end = region.address(cursor);
  if (old) {
    region.address(cursor);
    region.address(cursor);
  }
  region.root = region.address(cursor);
  if (!cursor.ok()) return reader.damaged("it ends inside its superblock");
  if (end > static_cast<uint64_t>(region.bytes))  // the only address that is relative to the start of the file
    return reader.damaged(
        fmt::format("it is truncated: its superblock says {} bytes, but there are only {}", end, region.bytes));
  return {};
}

}  // namespace plimsoll::engine
