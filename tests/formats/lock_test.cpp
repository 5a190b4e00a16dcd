#include "formats/file/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace plimsoll::engine {
namespace {

class LockTest : public testing::Test {
 protected:
  LockTest() {
    std::string name = std::filesystem::temp_directory_path().string() + "/plimsoll-lock-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/lock";
  }
  ~LockTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(LockTest, OneHolderAtATimeAndNoFileAfterwards) {
  {
    const auto first = LockFile::create(path_, "the folder");
    ASSERT_TRUE(first);
    EXPECT_TRUE(first->locks());
    const auto second = LockFile::create(path_, "the folder");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kCheckpointInUse);
    EXPECT_NE(second.error().what.find(fmt::format("the folder is in use by another run, process {}", ::getpid())),
              std::string::npos)
        << second.error().what;
    EXPECT_TRUE(std::filesystem::exists(path_)) << "the holder's file must stay";
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(LockFile::create(path_, "the folder"));
}

TEST_F(LockTest, WhatAKilledProcessLeftIsNoLock) {
  Descriptor(::open(path_.c_str(), O_CREAT | O_RDWR, 0666)).close();
  EXPECT_TRUE(LockFile::create(path_, "the folder"));
}

TEST_F(LockTest, ALinkInItsPlaceIsNotFollowed) {
  std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
  EXPECT_FALSE(LockFile::create(path_, "the folder"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

}  // namespace
}  // namespace plimsoll::engine
