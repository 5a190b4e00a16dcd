#include "formats/file/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "formats/file/cache.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::Environment;
using test::FileSizeLimit;
using test::slurp;
using test::spill;
using test::TempFolder;

TEST(File, ReadsAtAPosition) {
  const TempFolder folder;
  spill(folder / "f", "0123456789");
  const auto file = File::open_read(folder / "f");
  ASSERT_OK(file);
  EXPECT_EQ(file->size(), 10);
  std::array<char, 3> out{};
  ASSERT_OK(file->pread_exact(4, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(std::string(out.data(), 3), "456");
}

TEST(File, ReadingBeyondTheEndSaysWhereItEnded) {
  const TempFolder folder;
  spill(folder / "f", "0123456789");
  const auto file = File::open_read(folder / "f");
  ASSERT_OK(file);
  std::array<char, 8> out{};
  EXPECT_FAILS(file->pread_exact(4, std::as_writable_bytes(std::span(out))), kFileUnreadable, "ends at byte 10");
}

TEST(File, WhatCannotBeReadIsP202) {
  const TempFolder folder;
  EXPECT_FAILS(File::open_read(folder / "none"), kFileUnreadable, "none");
  EXPECT_FAILS(File::open_read(folder.path()), kFileUnreadable, "a folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FAILS(File::open_read(folder / "pipe"), kFileUnreadable, "a pipe");
}

TEST(AtomicFile, AppearsOnCommitAlone) {
  const TempFolder folder;
  spill(folder / "f", "old");
  {
    auto file = AtomicFile::create(folder / "f");
    ASSERT_OK(file);
    ASSERT_OK(file->write(bytes_of_text("new content")));
    EXPECT_EQ(slurp(folder / "f"), "old");
    ASSERT_OK(file->write_at(0, bytes_of_text("N")));
    ASSERT_OK(file->commit());
  }
  EXPECT_EQ(slurp(folder / "f"), "New content");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, LeavesNothingWhenNotCommitted) {
  const TempFolder folder;
  spill(folder / "f", "old");
  {
    auto file = AtomicFile::create(folder / "f");
    ASSERT_OK(file);
    ASSERT_OK(file->write(bytes_of_text("half")));
  }
  EXPECT_EQ(slurp(folder / "f"), "old");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, WritesThroughALink) {
  const TempFolder folder;
  spill(folder / "real", "old");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  auto file = AtomicFile::create(folder / "link");
  ASSERT_OK(file);
  ASSERT_OK(file->write(bytes_of_text("new")));
  ASSERT_OK(file->commit());
  EXPECT_EQ(slurp(folder / "real"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

TEST(AtomicFile, NeverReplacesADeviceOrAFolder) {
  const TempFolder folder;
  EXPECT_FAILS(AtomicFile::create("/dev/null"), kNotWritable, "a device");
  EXPECT_FAILS(AtomicFile::create(folder.path()), kNotWritable, "a folder");
}

TEST(AtomicFile, AFolderThatIsNotThereOrForbiddenIsP602) {
  const TempFolder folder;
  EXPECT_FAILS(AtomicFile::create(folder / "none/f"), kNotWritable, "mkdir -p");
  spill(folder / "file", "");
  EXPECT_FAILS(AtomicFile::create(folder / "file/f"), kNotWritable, "file");
  EXPECT_FAILS(AtomicFile::create("/proc/plimsoll"), kNotWritable, "/proc");
  if (::geteuid() != 0) {
    std::filesystem::permissions(folder.path(),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_FAILS(AtomicFile::create(folder / "f"), kNotWritable, "choose a folder");
    std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  }
}

TEST(AtomicFile, AFullDiskIsP601AndKeepsTheOldFile) {
  const TempFolder folder;
  spill(folder / "f", "old");
  {
    const FileSizeLimit limit(1000);
    auto file = AtomicFile::create(folder / "f");
    ASSERT_OK(file);
    EXPECT_FAILS(file->reserve(5000), kWriteFailed, "5000 bytes");
    EXPECT_FAILS(file->write(bytes_of_text(std::string(2000, 'x'))), kWriteFailed, "at byte 1000");
    EXPECT_FAILS(check_free_space(folder / "f", 5000), kWriteFailed, "5000 bytes");
  }
  EXPECT_EQ(slurp(folder / "f"), "old");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, ErrnoBecomesTheRightCode) {
  for (const int number : {ENOSPC, EIO, EFBIG, EDQUOT})
    EXPECT_EQ(write_error(number, "/a/f", "writing").code, ErrorCode::kWriteFailed) << number;
  for (const int number : {EACCES, EROFS, ENOENT, EPERM})
    EXPECT_EQ(write_error(number, "/a/f", "writing").code, ErrorCode::kNotWritable) << number;
}

TEST(PathAside, IsInTheSameFolderAndCommits) {
  const TempFolder folder;
  auto aside = PathAside::create(folder / "f");
  ASSERT_OK(aside);
  EXPECT_EQ(std::filesystem::path(aside->path()).parent_path(), folder.path());
  spill(aside->path(), "by a library");
  ASSERT_OK(aside->commit());
  EXPECT_EQ(slurp(folder / "f"), "by a library");
  EXPECT_EQ(folder.count(), 1u);
}

// Removes files of a process that was killed while writing, but not those of a running process, of another target, or
// recent ones.
TEST(PathAside, RemovesWhatDeadWritersLeftLongAgo) {
  const TempFolder folder;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const auto name = [&](const std::string& file, pid_t pid) { return fmt::format("{}.{}-3.part", file, pid); };
  const std::vector<std::string> old = {name("f", dead), name("f", ::getpid()), name("g", dead), name("f", dead) + "x"};
  const std::string recent = fmt::format("f.{}-4.part", dead);
  for (const std::string& file : old) {
    spill(folder / file, "x");
    std::filesystem::last_write_time(folder / file,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  spill(folder / recent, "x");
  auto aside = PathAside::create(folder / "f");
  ASSERT_OK(aside);
  EXPECT_FALSE(std::filesystem::exists(folder / old[0]));
  for (size_t i = 1; i < old.size(); ++i) EXPECT_TRUE(std::filesystem::exists(folder / old[i])) << old[i];
  EXPECT_TRUE(std::filesystem::exists(folder / recent));
}

TEST(TemporaryFile, LivesWhileItIsOpen) {
  const TempFolder folder;
  const Environment tmpdir("TMPDIR", folder.path());
  auto file = TemporaryFile::create();
  ASSERT_OK(file);
  ASSERT_OK(file->write(bytes_of_text("abc")));
  const auto opened = std::move(*file).open_read();
  ASSERT_OK(opened);
  EXPECT_EQ(folder.count(), 0u);
  std::array<char, 3> out{};
  ASSERT_OK(opened->pread_exact(0, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(std::string(out.data(), 3), "abc");
}

TEST(TemporaryFile, RoomIsAskedForBeforeAnythingIsUnpacked) {
  const TempFolder folder;
  const Environment tmpdir("TMPDIR", folder.path());
  const FileSizeLimit limit(1000);
  const auto file = TemporaryFile::create();
  ASSERT_OK(file);
  ASSERT_OK(file->check_space(1000));
  EXPECT_FAILS(file->check_space(1001), kWriteFailed, "TMPDIR");
}

// A user who may write to the folder must not be able to redirect the writing to another file: the name is opened only
// once.
TEST(AtomicFile, WritesTheFileItMadeWhateverBecomesOfItsName) {
  const TempFolder folder;
  spill(folder / "victim", "untouched");
  auto file = AtomicFile::create(folder / "f");
  ASSERT_OK(file);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".part") continue;
    const auto part = entry.path();
    std::filesystem::remove(part);
    std::filesystem::create_symlink(folder / "victim", part);
    break;
  }
  ASSERT_OK(file->write(bytes_of_text("new")));
  (void)file->commit();
  EXPECT_EQ(slurp(folder / "victim"), "untouched");
}

TEST(Cache, FolderFollowsTheEnvironment) {
  const TempFolder folder;
  const Environment home("HOME", folder / "home");
  const Environment xdg("XDG_CACHE_HOME", "");
  const Environment own("PLIMSOLL_CACHE", "");
  EXPECT_EQ(cache_folder().value(), folder / "home/.cache/plimsoll");
  ::setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  EXPECT_EQ(cache_folder().value(), folder / "xdg/plimsoll");
  ::setenv("PLIMSOLL_CACHE", (folder / "own").c_str(), 1);
  EXPECT_EQ(cache_folder().value(), folder / "own");
  ::setenv("PLIMSOLL_CACHE", "/proc/none", 1);
  EXPECT_FAILS(cache_folder(), kNotWritable, "PLIMSOLL_CACHE");
}

// Fetches a file through the cache and counts how often it had to be filled.
Result<std::string> fetch_cached(const std::string& path, int& filled) {
  PLIMSOLL_ASSIGN(const File source, File::open_read(path));
  return cached_file(source, "part", [&](const std::string& entry) -> Status {
    ++filled;
    spill(entry, "unpacked");
    return {};
  });
}

TEST(Cache, UnpacksOnceAndAgainWhenTheSourceChanges) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  spill(folder / "source", "abc");
  int filled = 0;
  const auto fetch = [&] { return fetch_cached(folder / "source", filled); };
  const auto first = fetch();
  ASSERT_OK(first);
  EXPECT_EQ(fetch().value(), *first);
  EXPECT_EQ(filled, 1);
  spill(folder / "source", "abcd");
  EXPECT_NE(fetch().value(), *first);
  EXPECT_EQ(filled, 2);
}

TEST(Cache, AnEntryThatWasChangedIsMadeAgain) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  spill(folder / "source", "abc");
  int filled = 0;
  const auto fetch = [&] { return fetch_cached(folder / "source", filled); };
  const auto path = fetch();
  ASSERT_OK(path);
  spill(*path, "Unpacked");
  ASSERT_OK(fetch());
  EXPECT_EQ(filled, 2);
  EXPECT_EQ(slurp(*path), "unpacked");
  std::filesystem::remove(*path + ".digest");
  ASSERT_OK(fetch());
  EXPECT_EQ(filled, 3);
  ASSERT_OK(fetch());
  EXPECT_EQ(filled, 3);
}

TEST(Cache, TheFolderIsForItsOwnerAlone) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  ASSERT_OK(cache_folder());
  const auto mode = [&] { return std::filesystem::status(folder / "cache").permissions(); };
  EXPECT_EQ(mode(), std::filesystem::perms::owner_all);
  std::filesystem::permissions(folder / "cache", std::filesystem::perms::all);
  EXPECT_FAILS(cache_folder(), kNotWritable, "chmod 700");
  EXPECT_EQ(mode(), std::filesystem::perms::all);  // unchanged, because others may need the folder
  EXPECT_EQ(read_cache_entry("kernel"), std::nullopt);
  std::filesystem::permissions(folder / "cache", std::filesystem::perms(0755));
  ASSERT_OK(cache_folder());
  if (::geteuid() != 0) return;  // only root can change the owner of a folder
  ASSERT_EQ(::chown((folder / "cache").c_str(), 12345, 12345), 0);
  EXPECT_FAILS(cache_folder(), kNotWritable, "12345");
}

TEST(Cache, SmallEntriesAreReadBackOnlyWhole) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  EXPECT_EQ(read_cache_entry("kernel"), std::nullopt);
  const std::string content("code\n\0code", 10);
  write_cache_entry("kernel", content);
  EXPECT_EQ(read_cache_entry("kernel"), content);
  const std::string path = folder / "cache/kernel", whole = slurp(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    spill(path, damaged);
    EXPECT_EQ(read_cache_entry("kernel"), std::nullopt) << at;
    spill(path, whole.substr(0, at));
    EXPECT_EQ(read_cache_entry("kernel"), std::nullopt) << at;
  }
  spill(folder / "cache/other", whole);
  EXPECT_EQ(read_cache_entry("other"), std::nullopt);  // it is the entry of another name
}

TEST(Cache, AnEntryOfSomebodyElseIsNotBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change the owner of a file";
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  write_cache_entry("kernel", "code");
  ASSERT_EQ(::chown((folder / "cache/kernel").c_str(), 12345, 12345), 0);
  EXPECT_EQ(read_cache_entry("kernel"), std::nullopt);
}

TEST(Cache, EntriesAreClosedToOthersWhateverTheMaskOfModes) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  const mode_t before = ::umask(0);
  write_cache_entry("kernel", "code");
  spill(folder / "source", "abc");
  const auto source = File::open_read(folder / "source");
  const auto array = cached_file(*source, "part", [](const std::string& path) -> Status {
    spill(path, "unpacked");
    return {};
  });
  ::umask(before);
  ASSERT_OK(array);
  EXPECT_EQ(read_cache_entry("kernel"), "code");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms(0600)) << entry.path();
  ::chmod((folder / "cache/kernel").c_str(), 0666);
  EXPECT_EQ(read_cache_entry("kernel"), std::nullopt);  // others may have changed it
}

TEST(Cache, TheOldestEntriesGoWhenItIsFull) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  const Environment size("PLIMSOLL_CACHE_SIZE", "2500");
  const auto age = [&](const std::string& name, int hours) {
    std::filesystem::last_write_time(folder / ("cache/" + name),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  const std::string thousand(1000, 'x');
  write_cache_entry("older", thousand);
  age("older", 3);
  write_cache_entry("oldest", thousand);
  age("oldest", 4);
  write_cache_entry("new", thousand);
  EXPECT_EQ(read_cache_entry("oldest"), std::nullopt);
  EXPECT_EQ(read_cache_entry("older"), thousand);
  EXPECT_EQ(read_cache_entry("new"), thousand);
  write_cache_entry("newer", thousand);
  write_cache_entry("newest", thousand);
  EXPECT_EQ(read_cache_entry("older"), std::nullopt);
  for (const char* name : {"new", "newer", "newest"}) EXPECT_EQ(read_cache_entry(name), thousand);  // used recently
}

}  // namespace
}  // namespace plimsoll::engine
