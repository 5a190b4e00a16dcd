#include "formats/file/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/digest.h"
#include "formats/file/cache_size.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kHeading = "plimsoll cache 1 ";  // followed by the digest and a line break
constexpr Bytes kLargestEntry = 64 * kMiB;                  // the size limit of entries that are read whole

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv). It distinguishes files and gives no security.
uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Fails unless only the user can write to the folder. Does not change its mode, because others may need the folder.
Status check_private(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0)
    return fail(write_error(errno, folder, fmt::format("creating the cache folder {}", folder)));
  const bool own = info.st_uid == ::geteuid();
  if (own && (info.st_mode & 022) == 0) return {};
  Error error{ErrorCode::kNotWritable,
              own ? fmt::format("others may write in the cache folder {} (mode {:o})", folder, info.st_mode & 07777)
                  : fmt::format("the cache folder {} belongs to another user (uid {})", folder, info.st_uid),
              {"Plimsoll runs code and trains on data from this folder, so only you may be able to write to it"},
              {}};
  if (own) error.remedy(fmt::format("chmod 700 {}", folder));
  return fail(std::move(error.remedy("set PLIMSOLL_CACHE to a folder of your own")));
}

// Opens a file that the user owns. While the folder was writable for others, they may have added or changed files.
std::optional<File> open_own(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return std::nullopt;
  auto file = File::of(std::move(fd), path);
  return file ? std::optional(std::move(*file)) : std::nullopt;
}

std::string digest_path(const std::string& path) {
  return path + ".digest";
}

std::optional<std::string> digest_of(const std::string& path) {
  const auto file = open_own(path);
  if (!file) return std::nullopt;
  Digest digest;
  const auto read = file->stream(0, file->size(), [&](std::span<const std::byte> piece) -> Status {
    digest.add(piece);
    return {};
  });
  return read ? std::optional(digest.text()) : std::nullopt;
}

// Removes the permissions of others, whatever the umask is.
void close_to_others(const std::string& path) {
  ::chmod(path.c_str(), 0600);
}

Status write_file(const std::string& path, std::string_view text) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.write(bytes_of_text(text)));
  PLIMSOLL_TRY(file.commit());
  close_to_others(path);
  return {};
}

std::optional<std::string> read_file(const std::string& path) {
  const auto file = open_own(path);
  if (!file || file->size() > kLargestEntry) return std::nullopt;
  std::string text(static_cast<size_t>(file->size()), '\0');
  if (!file->pread_exact(0, std::as_writable_bytes(std::span(text)))) return std::nullopt;
  return text;
}

// Checks an entry against its digest. Also marks the entry as used now.
bool is_whole(const std::string& path) {
  const auto written = read_file(digest_path(path));
  const auto digest = written ? digest_of(path) : std::nullopt;
  if (!digest || *written != fmt::format("{}{}\n", kHeading, *digest)) return false;
  ::utimensat(AT_FDCWD, digest_path(path).c_str(), nullptr, 0);
  return true;
}

// The heading contains the name, so that one entry cannot be mistaken for another.
std::string entry_heading(const std::string& name, std::string_view content) {
  Digest digest;
  digest.add(bytes_of_text(name));
  digest.add(bytes_of_text(content));
  return fmt::format("{}{}\n", kHeading, digest.text());
}

// Returns the content of an entry's text; nullopt if its heading is not that of this content.
std::optional<std::string> content_of(const std::string& name, const std::string& text) {
  const size_t begin = text.find('\n') + 1;  // 0 if there is no line break; then there is no heading either
  std::string content = text.substr(begin);
  if (text.substr(0, begin) != entry_heading(name, content)) return std::nullopt;
  return content;
}

// Returns "" if the environment names no folder.
std::string folder_of_environment() {
  if (const std::string own = environment("PLIMSOLL_CACHE"); !own.empty()) return own;
  if (const std::string caches = environment("XDG_CACHE_HOME"); !caches.empty()) return caches + "/plimsoll";
  const std::string home = environment("HOME");
  return home.empty() ? home : home + "/.cache/plimsoll";
}

}  // namespace

Result<std::string> cache_folder() {
  const std::string folder = folder_of_environment();
  if (folder.empty())
    return fail(Error{ErrorCode::kNotWritable,
                      "there is no cache folder for unpacked data: HOME is not set",
                      {},
                      {"set PLIMSOLL_CACHE to a folder on a disk with space"}});
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (!error && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) error.assign(errno, std::generic_category());
  if (!error && !std::filesystem::is_directory(folder)) error.assign(ENOTDIR, std::generic_category());
  if (error) {
    auto failure = write_error(error.value(), folder, fmt::format("creating the cache folder {}", folder));
    return fail(std::move(failure.remedy("set PLIMSOLL_CACHE to a folder on a disk with space")));
  }
  PLIMSOLL_TRY(check_private(folder));
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
  if (is_whole(path)) return path;
  PLIMSOLL_TRY(fill(path));
  close_to_others(path);
  const auto digest = digest_of(path);
  if (!digest) return fail(ErrorCode::kFileUnreadable, fmt::format("cannot read {}, which was just written", path));
  PLIMSOLL_TRY(write_file(digest_path(path), fmt::format("{}{}\n", kHeading, *digest)));
  keep_cache_small(folder);
  return path;
}

std::optional<std::string> read_cache_entry(const std::string& name) {
  const auto folder = cache_folder();
  const auto text = folder ? read_file(*folder + "/" + name) : std::nullopt;
  return text ? content_of(name, *text) : std::nullopt;
}

Result<std::optional<std::string>> find_cache_entry(const std::string& name) {
  const std::string folder = folder_of_environment(), path = folder + "/" + name;
  struct stat info {};
  if (folder.empty() || ::lstat(path.c_str(), &info) != 0) return std::optional<std::string>();
  PLIMSOLL_TRY(check_private(folder));
  const auto text = read_file(path);
  auto content = text ? content_of(name, *text) : std::nullopt;
  if (!content)
    return fail(Error{ErrorCode::kFileUnreadable,
                      fmt::format("{} is damaged, or is not a file that only you can write to", path),
                      {},
                      {"remove it"}});
  return content;
}

void write_cache_entry(const std::string& name, std::string_view content) {
  const auto folder = cache_folder();
  if (!folder) return;
  std::string text = entry_heading(name, content);
  text += content;
  if (write_file(*folder + "/" + name, text)) keep_cache_small(*folder);
}

}  // namespace plimsoll::engine
