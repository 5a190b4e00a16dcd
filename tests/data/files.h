// Data files for tests, in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "formats/file/array_source.h"
#include "formats/npy/npy.h"
#include "formats/zip/zip_writer.h"

namespace plimsoll::engine {

template <typename T>
inline constexpr DType kDTypeOf = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;

class DataFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "plimsoll-data-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern + "/";
    setenv("PLIMSOLL_CACHE", (folder_ + "cache").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + name; }

  template <typename T>
  static std::string npy_text(const std::vector<int64_t>& dims, const std::vector<T>& values) {
    std::string text = npy_header(kDTypeOf<T>, dims);
    text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return text;
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  template <typename T>
  std::string npy(const std::string& name, const std::vector<int64_t>& dims, const std::vector<T>& values) const {
    return write(name, npy_text(dims, values));
  }
  std::string npz(const std::string& name, const std::vector<std::pair<std::string, std::string>>& arrays) const {
    auto file = AtomicFile::create(path(name));
    EXPECT_TRUE(file);
    ZipWriter zip(*file);
    for (const auto& [array, text] : arrays) EXPECT_TRUE(zip.add_text(array + ".npy", text));
    EXPECT_TRUE(zip.finish());
    EXPECT_TRUE(file->commit());
    return path(name);
  }
  // Writes the magic number, big-endian dimensions and bytes; gzipped if the name ends in .gz.
  std::string idx(const std::string& name, const std::vector<int64_t>& dims, const std::vector<uint8_t>& values) const {
    std::string text{'\0', '\0', '\x08', static_cast<char>(dims.size())};
    for (int64_t d : dims)
      for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(d >> shift & 255);
    text.append(values.begin(), values.end());
    if (!name.ends_with(".gz")) return write(name, text);
    gzFile file = gzopen(path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
    gzclose(file);
    return path(name);
  }

 private:
  std::string folder_;
};

// Returns 0, 1, 2, ...
template <typename T>
std::vector<T> counting(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), T{});
  return values;
}

inline DataSpec one_in_one_out(Shape sample, int64_t classes) {
  DataSpec spec;
  spec.inputs = {{"image", std::move(sample), false, 0, {}}};
  spec.outputs = {{"digit", Shape{classes}, true, classes, {}}};
  return spec;
}

}  // namespace plimsoll::engine
