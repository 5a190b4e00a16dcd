// Shared by the tests of formats/: a temporary folder, whole files as text, the golden files.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace plimsoll::engine::test {

// The folder is removed at the end, unless PLIMSOLL_KEEP names a folder to keep the files in.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> counter = 0;
    const char* keep = std::getenv("PLIMSOLL_KEEP");
    keep_ = keep != nullptr;
    const std::filesystem::path base = keep_ ? keep : std::filesystem::temp_directory_path();
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("plimsoll-") + info->test_suite_name() + "-" + info->name() + "-" +
                       std::to_string(::getpid()) + "-" + std::to_string(counter++);
    std::replace(name.begin(), name.end(), '/', '-');  // names of parametrised tests contain slashes
    path_ = base / name;
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  size_t count() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

inline std::string golden(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/formats/" + name;
}

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Writes a new file each time, because truncating an old one makes some file systems flush it.
inline void spill(const std::string& path, std::string_view text) {
  std::filesystem::remove(path);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Limits the size of the files that this process may write, to simulate a full disk, until it is destroyed.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (had_)
      ::setenv(name_, old_.c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace plimsoll::engine::test

#define EXPECT_OK(expression)                                                    \
  do {                                                                           \
    const auto& ok_ = (expression);                                              \
    EXPECT_TRUE(ok_.has_value()) << (ok_ ? "" : plimsoll::to_text(ok_.error())); \
  } while (false)
#define ASSERT_OK(expression)                                                    \
  do {                                                                           \
    const auto& ok_ = (expression);                                              \
    ASSERT_TRUE(ok_.has_value()) << (ok_ ? "" : plimsoll::to_text(ok_.error())); \
  } while (false)
// The call must fail with this code, and its text must contain `part`.
#define EXPECT_FAILS(expression, expected_code, part)                                                                  \
  do {                                                                                                                 \
    const auto& failed_ = (expression);                                                                                \
    ASSERT_FALSE(failed_.has_value());                                                                                 \
    EXPECT_EQ(failed_.error().code, plimsoll::ErrorCode::expected_code) << plimsoll::to_text(failed_.error());         \
    EXPECT_NE(plimsoll::to_text(failed_.error()).find(part), std::string::npos) << plimsoll::to_text(failed_.error()); \
  } while (false)
