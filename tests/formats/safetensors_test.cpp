// .safetensors as --data reads it, through the table of formats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "formats/array_formats.h"
#include "formats/file/file.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

const ArrayFormat& format() {
  return *array_format_of_name("data.safetensors");
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xff);
  return text + rest;
}

std::string file_text(const std::string& header, const std::string& data) {
  return with_length(header.size(), header + data);
}

// Written like safetensors.numpy.save_file writes {"x": uint8 2 x 3, "y": int64 2}: with metadata, and blanks up to a
// multiple of 8.
const std::string kHeader = R"({"__metadata__":{"format":"np"},"y":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                            R"("x":{"dtype":"U8","shape":[2,3],"data_offsets":[16,22]}}   )";
const std::string kData = std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16) + "abcdef";

class Safetensors : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path(), std::ios::binary) << text;
    return path();
  }
  std::string path() const { return folder_ / "data.safetensors"; }
  // Returns the message for a file with one array "x" that has this header entry and 8 bytes of data.
  std::string refused(const std::string& entry) {
    write(file_text(fmt::format(R"({{"x":{}}})", entry), "01234567"));
    const auto opened = format().open_named(path(), "x");
    if (opened) return "accepted";
    EXPECT_EQ(opened.error().code, ErrorCode::kBadDataFile) << entry;
    return opened.error().what;
  }
  test::TempFolder folder_;
};

TEST_F(Safetensors, ArraysAreReadInPlace) {
  write(file_text(kHeader, kData));
  const auto names = format().names(path());
  ASSERT_TRUE(names) << names.error().what;
  EXPECT_EQ(*names, (std::vector<std::string>{"x", "y"}));
  const auto x = format().open_named(path(), "x");
  ASSERT_TRUE(x) << x.error().what;
  EXPECT_EQ(x->dtype, DType::kUInt8);
  EXPECT_EQ(x->dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(x->path, path());
  std::string elements(6, '\0');
  const auto file = File::open_read(path());
  ASSERT_TRUE(file && file->pread_exact(x->offset, std::as_writable_bytes(std::span(elements))));
  EXPECT_EQ(elements, "abcdef");
  const auto y = format().open_named(path(), "y");
  ASSERT_TRUE(y) << y.error().what;
  EXPECT_EQ(y->dtype, DType::kInt64);
  EXPECT_EQ(y->offset, 8 + static_cast<int64_t>(kHeader.size()));
}

TEST_F(Safetensors, IsKnownByItsFirstBytes) {
  const std::string text = file_text(kHeader, kData);
  EXPECT_EQ(array_format_of_start(text.substr(0, kSniffedBytes)), &format());
  const std::string longest = with_length((1 << 24) - 1, "{\"x\":{\"d");
  EXPECT_EQ(array_format_of_start(longest), &format());
  EXPECT_NE(array_format_of_start(std::string("\0\0\x08\x01\0\0\0\x05{bcdefg", kSniffedBytes)), &format()) << "IDX";
}

TEST_F(Safetensors, CutShortAnywhereIsAnError) {
  const std::string text = file_text(kHeader, kData);
  for (size_t size = 0; size < text.size(); ++size) {
    write(text.substr(0, size));
    const auto opened = format().open_named(path(), "x");
    ASSERT_FALSE(opened) << size;
    EXPECT_EQ(opened.error().code, ErrorCode::kBadDataFile) << size;
  }
}

TEST_F(Safetensors, HeadersThatPromiseTooMuchAreRefusedBeforeMemoryIsTaken) {
  for (const uint64_t length : {uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    write(with_length(length, "{}"));
    const auto names = format().names(path());
    ASSERT_FALSE(names);
    EXPECT_NE(names.error().what.find("ends inside its header"), std::string::npos) << names.error().what;
  }
  write(with_length(uint64_t{17} << 20, std::string(size_t{17} << 20, ' ')));
  const auto names = format().names(path());
  ASSERT_FALSE(names);
  EXPECT_NE(names.error().what.find("at most"), std::string::npos) << names.error().what;
}

TEST_F(Safetensors, EntriesThatLieAreRefused) {
  EXPECT_EQ(refused(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})"), "accepted");
  EXPECT_EQ(refused(R"({"dtype":"F32","shape":[],"data_offsets":[4,8]})"), "accepted");
  EXPECT_EQ(refused(R"({"dtype":"F32","shape":[0,5],"data_offsets":[8,8]})"), "accepted");
  for (const char* entry : {
           R"({"dtype":"U8","shape":[8],"data_offsets":[0,7]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[1,9]})",
           R"({"dtype":"U8","shape":[0],"data_offsets":[9,9]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[0,8,8]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[-8,0]})",
           R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]})",
           R"({"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
           R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})",
           R"({"dtype":"U8","shape":"8","data_offsets":[0,8]})",
           R"({"dtype":"U8","data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[8]})",
           R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})",
           R"({"dtype":8,"shape":[8],"data_offsets":[0,8]})",
           R"({"shape":[8],"data_offsets":[0,8]})",
           R"([])",
           R"(null)",
       })
    EXPECT_NE(refused(entry), "accepted") << entry;
}

TEST_F(Safetensors, WhatIsNoObjectOfArraysIsRefused) {
  for (const char* header : {"", "[]", "3", "{", R"({"x")", "\xff\xfe"}) {
    write(file_text(header, "01234567"));
    const auto names = format().names(path());
    ASSERT_FALSE(names) << header;
    EXPECT_EQ(names.error().code, ErrorCode::kBadDataFile) << header;
  }
  write(file_text(std::string(100'000, '['), ""));
  EXPECT_FALSE(format().names(path())) << "nested";
}

}  // namespace
}  // namespace plimsoll::engine
