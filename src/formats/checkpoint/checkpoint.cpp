#include "formats/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "base/checked.h"
#include "base/json.h"
#include "base/json_numbers.h"
#include "formats/file/array_source.h"
#include "formats/file/inflate.h"
#include "formats/json/parse.h"
#include "formats/limits.h"

namespace plimsoll::engine {

static_assert(std::endian::native == std::endian::little,
              "checkpoints are little-endian and tensors are written without conversion");

namespace {

using Json = nlohmann::json;

constexpr char kMagic[] = "PLMCKPT1";
// One write and one CRC per piece, so that it is still in the CPU cache for the second.
constexpr int64_t kPiece = kMiB;
constexpr int64_t kTensorAlignment = 64;  // in the file

struct Preamble {
  char magic[8];
  uint64_t json_bytes;
  uint32_t crc32;
  uint32_t zero;
};
static_assert(sizeof(Preamble) == 24);

uint32_t checksum(uint32_t crc, std::span<const std::byte> data) {
  return crc32_of(crc, data);
}

uint32_t header_checksum(const Preamble& preamble, std::string_view json) {
  const auto fixed = bytes_of(preamble).first(offsetof(Preamble, crc32));
  return checksum(checksum(0, fixed), bytes_of_text(json));
}

tl::unexpected<Error> bad(const std::string& path, std::string_view what) {
  Error error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what), {}, {}};
  return fail(std::move(error.remedy("use an earlier checkpoint, or start again in another folder")));
}

// Checksums have a fixed width, so filling them in last does not change the length of the text.
std::string checksum_text(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

std::string header_text(const Json& header, const std::vector<Checkpoint::Entry>& entries) {
  Json table = Json::array();
  for (const auto& entry : entries)
    table.push_back(json_object({{"name", entry.name},
                                 {"dtype", name_of(entry.type.dtype)},
                                 {"shape", entry.type.shape.dims},
                                 {"offset", entry.offset},
                                 {"bytes", entry.type.bytes()},
                                 {"crc32", checksum_text(entry.crc32)}}));
  return json_object({{"header", header}, {"tensors", std::move(table)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The JSON text contains offsets that depend on its own length, so the space for it grows until it fits.
int64_t lay_out(const Json& header, std::vector<Checkpoint::Entry>& entries) {
  int64_t begin = 0, end = 0;
  for (;;) {
    end = begin;
    for (auto& entry : entries) {
      entry.offset = align_up(end, kTensorAlignment);
      end = entry.offset + entry.type.bytes();
    }
    const auto wanted = static_cast<int64_t>(sizeof(Preamble) + header_text(header, entries).size());
    if (wanted <= begin) return end;
    begin = align_up(wanted, kTensorAlignment);
  }
}

Status write_tensor(AtomicFile& file, const void* data, Checkpoint::Entry& entry) {
  PLIMSOLL_TRY(file.pad_to(entry.offset));
  const std::span bytes(static_cast<const std::byte*>(data), static_cast<size_t>(entry.type.bytes()));
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min<size_t>(kPiece, bytes.size() - at));
    entry.crc32 = checksum(entry.crc32, piece);
    PLIMSOLL_TRY(file.write(piece));
  }
  return {};
}

int64_t whole(const Json& number) {
  return whole_number(number, 0).value_or(-1);
}

Result<Checkpoint::Entry> parse_entry(const Json& row, const std::string& path, int64_t file_bytes) {
  Checkpoint::Entry entry{row.at("name").get<std::string>(), {}, whole(row.at("offset")), 0};
  const auto dtype = dtype_from_name(row.at("dtype").get<std::string>());
  std::vector<int64_t> dims;
  for (const Json& dim : row.at("shape")) dims.push_back(whole(dim));
  const Bytes bytes = dtype ? array_bytes(*dtype, dims).value_or(-1) : -1;
  const auto crc = row.at("crc32").get<std::string>();
  const auto parsed = std::from_chars(crc.data(), crc.data() + crc.size(), entry.crc32, 16);
  if (bytes < 0 || bytes != whole(row.at("bytes")) || parsed.ec != std::errc{} || entry.offset < 0)
    return bad(path, fmt::format("the table entry of tensor {} is invalid", entry.name));
  if (!lies_within(entry.offset, bytes, file_bytes))
    return bad(path,
               fmt::format("it is truncated: tensor {} has {} bytes starting at byte {}, but the file ends at byte {}",
                           entry.name, bytes, entry.offset, file_bytes));
  entry.type = {*dtype, Shape(std::move(dims))};
  return entry;
}

Result<std::string> read_header(const File& file) {
  Preamble preamble{};
  if (file.size() < static_cast<int64_t>(sizeof(preamble)))
    return bad(file.path(), fmt::format("it has only {} bytes, too few for a checkpoint", file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(&preamble, 1))));
  if (std::memcmp(preamble.magic, kMagic, sizeof(preamble.magic)) != 0)
    return bad(file.path(), fmt::format("it is not a checkpoint: it does not begin with {}", kMagic));
  const auto most = std::min<int64_t>(file.size() - static_cast<int64_t>(sizeof(preamble)), limits::kJsonBytes);
  if (preamble.json_bytes > static_cast<uint64_t>(most))
    return bad(file.path(),
               fmt::format("it is truncated or damaged: its header has {} bytes at byte {}, but the file has {}",
                           preamble.json_bytes, sizeof(preamble), file.size()));
  std::string json(preamble.json_bytes, '\0');
  PLIMSOLL_TRY(file.pread_exact(sizeof(preamble), std::as_writable_bytes(std::span(json))));
  if (header_checksum(preamble, json) != preamble.crc32 || preamble.zero != 0)
    return bad(file.path(), fmt::format("the header (bytes 0 to {}) is damaged: its CRC32 is wrong",
                                        sizeof(preamble) + json.size()));
  return json;
}

}  // namespace

Status write_checkpoint(const std::string& path, const Json& header, std::span<const CheckpointTensor> tensors,
                        const std::function<void()>& before_commit) {
  std::vector<Checkpoint::Entry> entries;
  std::unordered_set<std::string> names;
  for (const auto& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return fail(ErrorCode::kInternal, fmt::format("{}: two tensors are named {}", path, tensor.name));
    entries.push_back({tensor.name, tensor.type, 0, 0});
  }
  const int64_t end = lay_out(header, entries);
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.reserve(end));
  for (size_t i = 0; i < entries.size(); ++i) PLIMSOLL_TRY(write_tensor(file, tensors[i].data, entries[i]));
  PLIMSOLL_TRY(file.pad_to(end));
  const auto json = header_text(header, entries);
  Preamble preamble{};
  std::memcpy(preamble.magic, kMagic, sizeof(preamble.magic));
  preamble.json_bytes = json.size();
  preamble.crc32 = header_checksum(preamble, json);
  PLIMSOLL_TRY(file.write_at(0, bytes_of(preamble)));
  PLIMSOLL_TRY(file.write_at(sizeof(preamble), bytes_of_text(json)));
  if (before_commit) before_commit();
  return file.commit();
}

Result<Checkpoint> open_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  PLIMSOLL_ASSIGN(checkpoint.file_, File::open_read(path));
  PLIMSOLL_ASSIGN(const std::string text, read_header(checkpoint.file_));
  auto parsed = parse_json(text, path, ErrorCode::kBadCheckpoint);
  if (!parsed) return fail(std::move(parsed.error().remedy("resume from an earlier checkpoint")));
  Json& json = *parsed;
  try {
    for (const auto& row : json.at("tensors")) {
      PLIMSOLL_ASSIGN(auto entry, parse_entry(row, path, checkpoint.file_.size()));
      checkpoint.tensors_.push_back(std::move(entry));
    }
    checkpoint.header_ = std::move(json.at("header"));
  } catch (const Json::exception& error) {
    return bad(path, fmt::format("its header is invalid: {}", error.what()));
  }
  return checkpoint;
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const {
  for (const auto& entry : tensors_)
    if (entry.name == name) return &entry;
  return nullptr;
}

Status Checkpoint::read_into(std::string_view name, const TensorType& type, void* destination) const {
  const auto* entry = find(name);
  if (entry == nullptr)
    return bad(file_.path(), fmt::format("tensor {} is missing (expected {})", name, to_text(type)));
  if (entry->type != type)
    return bad(file_.path(), fmt::format("tensor {} is {}, expected {}", name, to_text(entry->type), to_text(type)));
  const std::span bytes(static_cast<std::byte*>(destination), static_cast<size_t>(type.bytes()));
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min<size_t>(kPiece, bytes.size() - at));
    PLIMSOLL_TRY(file_.pread_exact(entry->offset + static_cast<int64_t>(at), piece));
    crc = checksum(crc, piece);
  }
  return compare(*entry, crc);
}

Status Checkpoint::verify() const {
  for (const Entry& entry : tensors_) {
    uint32_t crc = 0;
    PLIMSOLL_TRY(file_.stream(entry.offset, entry.type.bytes(), [&](std::span<const std::byte> piece) -> Status {
      crc = checksum(crc, piece);
      return {};
    }));
    PLIMSOLL_TRY(compare(entry, crc));
  }
  return {};
}

Status Checkpoint::compare(const Entry& entry, uint32_t crc) const {
  if (crc == entry.crc32) return {};
  return bad(file_.path(), fmt::format("tensor {} (bytes {} to {}) is damaged: its CRC32 is {}, expected {}",
                                       entry.name, entry.offset, entry.offset + entry.type.bytes(), checksum_text(crc),
                                       checksum_text(entry.crc32)));
}

}  // namespace plimsoll::engine
