#include "formats/file/cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace plimsoll {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv): tells files apart, guards against nobody.
uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

Result<std::string> cache_folder() {
  std::string folder = environment("PLIMSOLL_CACHE");
  if (folder.empty() && !environment("XDG_CACHE_HOME").empty()) folder = environment("XDG_CACHE_HOME") + "/plimsoll";
  if (folder.empty() && !environment("HOME").empty()) folder = environment("HOME") + "/.cache/plimsoll";
  if (folder.empty())
    return fail(Error{ErrorCode::kNotWritable,
                      "there is no folder to unpack compressed data into: HOME is not set",
                      {},
                      {"set PLIMSOLL_CACHE to a folder on a disk with space"}});
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    auto failure = write_error(error.value(), folder, fmt::format("creating the cache folder {}", folder));
    return fail(std::move(failure.remedy("set PLIMSOLL_CACHE to a folder on a disk with space")));
  }
  return folder;
}

Result<std::string> cached_file(const File& source, const std::string& part,
                                const std::function<Status(const std::string& path)>& fill) {
  PLIMSOLL_ASSIGN(const std::string folder, cache_folder());
  std::error_code error;
  auto whole_path = std::filesystem::canonical(source.path(), error);
  if (error) whole_path = source.path();
  const auto key =
      fmt::format("{}\n{}\n{}\n{}\n{}", whole_path.string(), source.size(), source.modified_ns(), source.inode(), part);
  const auto stem = std::filesystem::path(source.path()).filename().string().substr(0, 64);
  auto path = fmt::format("{}/{}-{:016x}.npy", folder, stem, fnv1a(key));
  // Only whole files get this name: they are renamed into it.
  if (!std::filesystem::exists(path, error)) PLIMSOLL_TRY(fill(path));
  return path;
}

}  // namespace plimsoll
