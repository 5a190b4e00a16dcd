#include "formats/file/cache_size.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDigest = ".digest";
constexpr std::chrono::hours kUsedLately{1};

// A cache entry together with its digest file.
struct Entry {
  std::vector<fs::path> files;
  Bytes bytes = 0;
  fs::file_time_type used = fs::file_time_type::min();
};

std::vector<Entry> entries_of(const std::string& folder) {
  std::map<std::string, Entry> entries;
  for (std::string name : names_in(folder)) {
    const fs::path path = fs::path(folder) / name;
    std::error_code unknown;
    if (fs::symlink_status(path, unknown).type() != fs::file_type::regular) continue;
    if (name.ends_with(kDigest)) name.resize(name.size() - kDigest.size());
    const auto bytes = fs::file_size(path, unknown);
    const auto time = fs::last_write_time(path, unknown);
    if (unknown) continue;
    Entry& entry = entries[name];
    entry.files.push_back(path);
    entry.bytes += static_cast<Bytes>(bytes);
    entry.used = std::max(entry.used, time);
  }
  std::vector<Entry> all;
  for (auto& [name, entry] : entries) all.push_back(std::move(entry));
  return all;
}

}  // namespace

Bytes cache_size() {
  const char* text = std::getenv("PLIMSOLL_CACHE_SIZE");
  if (text == nullptr) return kCacheBytes;
  return parse_bytes(text).value_or(kCacheBytes);
}

void keep_cache_small(const std::string& folder) {
  auto entries = entries_of(folder);
  Bytes left = 0;
  for (const Entry& entry : entries) left += entry.bytes;
  const Bytes most = cache_size();
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

}  // namespace plimsoll::engine
