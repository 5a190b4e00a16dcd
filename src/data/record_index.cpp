#include "data/record_index.h"

#include <algorithm>
#include <array>

#include "base/digest.h"
#include "formats/file/gzip.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostEntries = size_t{1} << 19;  // 4 MiB

Result<File> open_unpacked(const std::string& path) {
  PLIMSOLL_ASSIGN(File file, File::open_read(path));
  std::array<char, 2> start{};
  if (file.size() >= 2) PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start))));
  if (!is_gzip({start.data(), start.size()})) return file;
  PLIMSOLL_ASSIGN(const std::string unpacked, unpacked_file(file));
  return File::open_read(unpacked);
}

}  // namespace

Result<RecordIndex> RecordIndex::build(const std::vector<std::string>& paths, bool skip) {
  RecordIndex index;
  for (const std::string& path : paths) PLIMSOLL_TRY(index.add(path, skip));
  for (Shard& shard : index.shards_) shard.positions.shrink_to_fit();
  return index;
}

Status RecordIndex::add(const std::string& path, bool skip) {
  PLIMSOLL_ASSIGN(File opened, open_unpacked(path));
  const int64_t before = records();
  Shard& shard = shards_.emplace_back();
  shard.file = std::make_unique<File>(std::move(opened));
  shard.begin = shard.end = before;
  std::vector<std::byte> buffer(static_cast<size_t>(kStreamBuffer)), record;
  RecordHeads heads(*shard.file, buffer);
  for (int64_t position = 0;;) {
    auto place = heads.at(position);
    if (place && !*place) return {};
    Status whole = place ? Status() : Status(fail(place.error()));
    if (whole && skip) {
      record.resize(static_cast<size_t>((*place)->bytes + kRecordTail));
      whole = read_record(*shard.file, **place, record);
    }
    if (!whole) {
      if (!skip) return fail(std::move(whole).error());
      ++dropped_;
      // A record with a wrong length hides where the next one begins.
      PLIMSOLL_ASSIGN(position, place ? Result<int64_t>((*place)->next()) : heads.search(position + 1));
      continue;
    }
    if ((shard.end - shard.begin) % stride_ == 0) {
      shard.positions.push_back(static_cast<uint64_t>(position));
      ++entries_;
    }
    ++shard.end;
    longest_ = std::max(longest_, (*place)->bytes);
    position = (*place)->next();
    if (entries_ > kMostEntries && !skip) thin_out();
  }
}

void RecordIndex::thin_out() {
  stride_ *= 2;
  entries_ = 0;
  for (Shard& shard : shards_) {
    size_t kept = 0;
    for (size_t i = 0; i < shard.positions.size(); i += 2) shard.positions[kept++] = shard.positions[i];
    shard.positions.resize(kept);
    entries_ += kept;
  }
}

Result<RecordIndex::Found> RecordIndex::find(int64_t record, std::span<std::byte> buffer) const {
  const auto shard = std::upper_bound(shards_.begin(), shards_.end(), record,
                                      [](int64_t at, const Shard& one) { return at < one.end; });
  const int64_t inside = record - shard->begin;
  auto position = static_cast<int64_t>(shard->positions[static_cast<size_t>(inside / stride_)]);
  RecordHeads heads(*shard->file, buffer);
  for (int64_t left = inside % stride_;; --left) {
    PLIMSOLL_ASSIGN(const auto place, heads.at(position));
    if (!place) return fail(ErrorCode::kBadDataFile, shard->file->path() + ": it changed while it was read");
    if (left == 0) return Found{shard->file.get(), *place};
    position = place->next();
  }
}

void RecordIndex::keep(const std::vector<bool>& keeps) {
  int64_t record = 0, end = 0;
  for (Shard& shard : shards_) {
    std::vector<uint64_t> kept;
    for (const uint64_t position : shard.positions)
      if (keeps[static_cast<size_t>(record++)]) kept.push_back(position);
    shard.begin = end;
    end += static_cast<int64_t>(kept.size());
    shard.end = end;
    kept.shrink_to_fit();
    shard.positions = std::move(kept);
  }
  dropped_ += record - end;
}

Bytes RecordIndex::bytes() const {
  Bytes bytes = 0;
  for (const Shard& shard : shards_)
    bytes += static_cast<Bytes>(shard.positions.capacity() * sizeof(uint64_t) + sizeof(Shard) + sizeof(File) +
                                shard.file->path().size());
  return bytes;
}

// The sizes of the files, and their first and last bytes.
std::string RecordIndex::digest() const {
  Digest digest;
  std::vector<std::byte> piece(16 * 1024);
  for (const Shard& shard : shards_) {
    const int64_t size = shard.file->size();
    digest.add(bytes_of(size));
    const auto part = std::span(piece).first(static_cast<size_t>(std::min<int64_t>(size, 16 * 1024)));
    for (const int64_t at : {int64_t{0}, size - static_cast<int64_t>(part.size())})
      if (shard.file->pread_exact(at, part)) digest.add(part);
  }
  return digest.text();
}

}  // namespace plimsoll::engine
