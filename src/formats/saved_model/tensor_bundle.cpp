#include "formats/saved_model/tensor_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/checked.h"
#include "formats/file/array_source.h"
#include "formats/hdf5/elements.h"
#include "formats/hdf5/reader.h"
#include "formats/limits.h"
#include "formats/saved_model/protobuf.h"
#include "formats/saved_model/table.h"

namespace plimsoll::engine {
namespace {

// TensorFlow's DataType.
std::optional<DType> dtype_of(uint64_t number) {
  switch (number) {
    case 1:
      return DType::kFloat32;
    case 2:
      return DType::kFloat64;
    case 3:
      return DType::kInt32;
    case 4:
      return DType::kUInt8;
    case 5:
      return DType::kInt16;
    case 6:
      return DType::kInt8;
    case 9:
      return DType::kInt64;
    case 10:
      return DType::kBool;
    case 14:
      return DType::kBFloat16;
    case 17:
      return DType::kUInt16;
    case 19:
      return DType::kFloat16;
    case 22:
      return DType::kUInt32;
    case 23:
      return DType::kUInt64;
    default:
      return std::nullopt;
  }
}
constexpr uint64_t kString = 7;

constexpr std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t)
    for (uint32_t i = 0; i < 256; ++i) tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  return tables;
}
constexpr auto kCrcTables = make_crc_tables();

// TensorShapeProto: {dim = 2 {size = 1}, unknown_rank = 3}
bool parse_shape(std::span<const std::byte> message, std::vector<int64_t>& dims) {
  ProtoReader shape(message);
  while (shape.next()) {
    if (shape.field() == 3 && shape.number() != 0) return false;
    if (shape.field() != 2) continue;
    ProtoReader dim(shape.bytes());
    int64_t size = 0;
    while (dim.next())
      if (dim.field() == 1) size = std::bit_cast<int64_t>(dim.number());
    if (!dim.ok() || size < 0 || dims.size() >= static_cast<size_t>(limits::kHdf5Rank)) return false;
    dims.push_back(size);
  }
  return shape.ok();
}

}  // namespace

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  while (bytes.size() >= 8) {  // eight bytes at a time ("slicing by 8")
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kCrcTables[7 - i][word >> (8 * i) & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t masked_crc(uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8U;
}

// BundleEntryProto: {dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6, slices = 7}. The entry with
// the empty key is the BundleHeaderProto: {num_shards = 1, endianness = 2}.
Status TensorBundle::take_entry(std::string_view key, std::span<const std::byte> value, uint64_t& shards) {
  ProtoReader fields(value);
  if (key.empty()) {
    while (fields.next()) {
      if (fields.field() == 1) shards = fields.number();
      if (fields.field() == 2 && fields.number() != 0) return bad_weights(label_, "its numbers are big-endian");
    }
    return fields.ok() ? Status() : bad_weights(label_, "its header is damaged");
  }
  Entry entry;
  entry.name = key;
  uint64_t dtype = 0, offset = 0, bytes = 0;
  std::vector<int64_t> dims;
  bool good = true;
  while (fields.next()) {
    if (fields.field() == 1) dtype = fields.number();
    if (fields.field() == 2) good = good && parse_shape(fields.bytes(), dims);
    if (fields.field() == 3) entry.shard = fields.number();
    if (fields.field() == 4) offset = fields.number();
    if (fields.field() == 5) bytes = fields.number();
    if (fields.field() == 6) entry.checksum = static_cast<uint32_t>(fields.number());
    if (fields.field() == 7) entry.unreadable = "it is stored in slices";
  }
  if (!good || !fields.ok() || offset > INT64_MAX || bytes > INT64_MAX)
    return bad_weights(label_, fmt::format("the entry of {} is damaged", key));
  entry.offset = static_cast<int64_t>(offset);
  entry.bytes = static_cast<int64_t>(bytes);
  entry.text = dtype == kString;
  const auto type = dtype_of(dtype);
  if (array_bytes(DType::kFloat64, dims))  // the size cannot overflow for any dtype
    entry.type = {type.value_or(DType::kFloat32), Shape(dims)};
  else if (entry.unreadable.empty())
    entry.unreadable = "its shape is too large";
  if (!type && entry.unreadable.empty())
    entry.unreadable = entry.text ? "text" : fmt::format("its type {} is not supported", dtype);
  entries_.push_back(std::move(entry));
  return {};
}

Status TensorBundle::check_places() {
  std::ranges::sort(entries_, {}, &Entry::name);
  const auto same = std::ranges::adjacent_find(entries_, {}, &Entry::name);
  if (same != entries_.end()) return bad_weights(label_, fmt::format("two tensors are named {}", same->name));
  for (const Entry& entry : entries_) {
    if (entry.shard >= shards_.size())
      return bad_weights(label_, fmt::format("{} lies in data file {} of {}", entry.name, entry.shard, shards_.size()));
    if (!lies_within(entry.offset, entry.bytes, shards_[entry.shard].size()))
      return bad_weights(label_, fmt::format("{} would lie outside the {} bytes of {}", entry.name,
                                             shards_[entry.shard].size(), shards_[entry.shard].path()));
    if (entry.unreadable.empty() && entry.bytes != entry.type.bytes())
      return bad_weights(
          label_, fmt::format("{} has {} bytes, but its shape needs {}", entry.name, entry.bytes, entry.type.bytes()));
  }
  return {};
}

Result<TensorBundle> TensorBundle::open(const std::string& prefix) {
  TensorBundle bundle;
  bundle.label_ = prefix + ".index";
  PLIMSOLL_ASSIGN(const File index, File::open_read(bundle.label_));
  uint64_t shards = 0;
  PLIMSOLL_TRY(read_table(index, bundle.label_, [&](std::string_view key, std::span<const std::byte> value) {
    return bundle.take_entry(key, value, shards);
  }));
  if (shards < 1 || shards > static_cast<uint64_t>(limits::kBundleShards))
    return bad_weights(bundle.label_,
                       fmt::format("it has {} data files; 1 to {} are supported", shards, limits::kBundleShards));
  for (uint64_t i = 0; i < shards; ++i) {
    PLIMSOLL_ASSIGN(File shard, File::open_read(fmt::format("{}.data-{:05}-of-{:05}", prefix, i, shards)));
    bundle.shards_.push_back(std::move(shard));
  }
  PLIMSOLL_TRY(bundle.check_places());
  return bundle;
}

const TensorBundle::Entry* TensorBundle::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(entries_, name, std::less<>(), &Entry::name);
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

std::optional<TensorType> TensorBundle::type_of(std::string_view name) const {
  const Entry* entry = find(name);
  return entry != nullptr ? std::optional(entry->type) : std::nullopt;
}

Status TensorBundle::read_into(std::string_view name, const TensorType& type, void* destination) const {
  const Entry* entry = find(name);
  if (entry == nullptr)
    return fail(ErrorCode::kWeightMissing,
                fmt::format("{} has no tensor {}; expected {}", label_, name, to_text(type)));
  if (!entry->unreadable.empty())
    return bad_weights(label_, fmt::format("{} cannot be read: {}", name, entry->unreadable));
  const auto convertible = [](DType dtype) { return dtype != DType::kBFloat16 && dtype != DType::kBool; };
  const bool same = entry->type.dtype == type.dtype;
  if (entry->type.shape != type.shape || (!same && !(convertible(type.dtype) && convertible(entry->type.dtype))))
    return fail(ErrorCode::kWeightShape,
                fmt::format("{}: {} is {}, expected {}", label_, name, to_text(entry->type), to_text(type)));
  Hdf5Element element;
  element.dtype = entry->type.dtype;
  element.bytes = size_of(entry->type.dtype);
  auto* out = static_cast<std::byte*>(destination);
  uint32_t crc = 0;
  // A piece holds whole elements, because the buffer's size is a multiple of all their sizes.
  PLIMSOLL_TRY(shards_[entry->shard].stream(entry->offset, entry->bytes, [&](std::span<const std::byte> piece) {
    crc = crc32c(crc, piece);
    convert_elements(element, piece, type.dtype, out);
    out += static_cast<int64_t>(piece.size()) / element.bytes * size_of(type.dtype);
    return Status();
  }));
  if (masked_crc(crc) != entry->checksum)
    return bad_weights(label_, fmt::format("{} is damaged: its checksum is wrong", name));
  return {};
}

// A text is stored as its length, a checksum of the length, and its bytes.
Result<std::string> TensorBundle::read_text(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr || !entry->text || !entry->type.shape.dims.empty())
    return fail(ErrorCode::kWeightMissing, fmt::format("{} has no text {}", label_, name));
  if (entry->bytes > limits::kObjectGraphBytes)
    return bad_weights(label_, fmt::format("{} is larger than {}", name, format_bytes(limits::kObjectGraphBytes)));
  std::string text(static_cast<size_t>(entry->bytes), '\0');
  PLIMSOLL_TRY(shards_[entry->shard].pread_exact(entry->offset, std::as_writable_bytes(std::span(text))));
  std::span<const std::byte> rest = std::as_bytes(std::span(text));
  uint64_t length = 0;
  constexpr size_t kChecksum = 4;
  if (!take_varint(rest, length) || rest.size() < kChecksum || length != rest.size() - kChecksum)
    return bad_weights(label_, fmt::format("{} is damaged", name));
  return text.substr(text.size() - static_cast<size_t>(length));
}

}  // namespace plimsoll::engine
