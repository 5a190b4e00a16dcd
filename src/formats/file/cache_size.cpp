#include "formats/file/cache_size.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDigest = ".digest";
constexpr std::chrono::hours kUsedLately{1};

// An entry with its digest.
struct Entry {
  std::vector<fs::path> files;
  Bytes bytes = 0;
  fs::file_time_type used = fs::file_time_type::min();
};

Bytes most_bytes() {
  const char* text = std::getenv("PLIMSOLL_CACHE_SIZE");
  if (text == nullptr) return kCacheBytes;
  return parse_bytes(text).value_or(kCacheBytes);
}

std::vector<Entry> entries_of(const std::string& folder) {
  std::map<std::string, Entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (!at->is_regular_file(unknown) || at->is_symlink(unknown)) continue;
    std::string name = at->path().filename().string();
    if (name.ends_with(kDigest)) name.resize(name.size() - kDigest.size());
    const auto bytes = at->file_size(unknown);
    const auto time = at->last_write_time(unknown);
    if (unknown) continue;
    Entry& entry = entries[name];
    entry.files.push_back(at->path());
    entry.bytes += static_cast<Bytes>(bytes);
    entry.used = std::max(entry.used, time);
  }
  std::vector<Entry> all;
  for (auto& [name, entry] : entries) all.push_back(std::move(entry));
  return all;
}

}  // namespace

void keep_cache_small(const std::string& folder) {
  auto entries = entries_of(folder);
  Bytes left = 0;
  for (const Entry& entry : entries) left += entry.bytes;
  const Bytes most = most_bytes();
  if (left <= most) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  const auto lately = fs::file_time_type::clock::now() - kUsedLately;
  for (const Entry& entry : entries) {
    if (left <= most || entry.used > lately) return;
    std::error_code ignored;
    for (const auto& file : entry.files) fs::remove(file, ignored);
    left -= entry.bytes;
  }
}

}  // namespace plimsoll
