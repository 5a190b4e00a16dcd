#include "formats/hdf5/weights_file.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::slurp;
using test::spill;
using test::TempFolder;

const std::vector<uint16_t> kHalves = {0x3c00, 0x4000, 0xc200};  // 1, 2, -3
const std::vector<double> kDoubles = {1, 2, -3};
const std::vector<uint8_t> kFlags = {1, 0, 1};

std::vector<WeightEntry> entries() {
  return {{"a/vars/0", {DType::kFloat16, {3}}, kHalves.data()},
          {"a/vars/1", {DType::kBFloat16, {3}}, kHalves.data()},
          {"a/vars/2", {DType::kFloat64, {3}}, kDoubles.data()},
          {"a/vars/10", {DType::kBool, {3}}, kFlags.data()},
          {"b/vars/0", {DType::kUInt8, {3, 1}}, kFlags.data()}};
}

Status write_h5(const std::string& path, std::span<const WeightEntry> list, const WeightsFile* source) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(write_weights(file, list, source));
  return file.commit();
}

TEST(WeightsFile, EveryElementTypeComesBack) {
  const TempFolder folder;
  ASSERT_OK(write_h5(folder / "w.h5", entries(), nullptr));
  const auto file = WeightsFile::open(folder / "w.h5", "w.h5");
  ASSERT_OK(file);
  ASSERT_EQ(file->datasets().size(), 5u);
  EXPECT_EQ(file->datasets()[3].path, "a/vars/10");
  for (const auto& entry : entries()) {
    const auto* dataset = file->find(entry.path);
    ASSERT_NE(dataset, nullptr);
    EXPECT_EQ(dataset->type, entry.type);
    std::vector<char> out(static_cast<size_t>(entry.type.bytes()));
    ASSERT_OK(file->read_into(entry.path, entry.type, out.data()));
    EXPECT_EQ(std::memcmp(out.data(), entry.data, out.size()), 0) << entry.path;
  }
  std::vector<float> floats(3);
  ASSERT_OK(file->read_into("a/vars/0", {DType::kFloat32, {3}}, floats.data()));
  EXPECT_EQ(floats, (std::vector<float>{1, 2, -3}));
  ASSERT_OK(file->read_into("a/vars/2", {DType::kFloat32, {3}}, floats.data()));
  EXPECT_EQ(floats, (std::vector<float>{1, 2, -3}));
}

TEST(WeightsFile, MissingAndMismatchedWeightsAreNamed) {
  const TempFolder folder;
  ASSERT_OK(write_h5(folder / "w.h5", entries(), nullptr));
  const auto file = WeightsFile::open(folder / "w.h5", "w.h5");
  ASSERT_OK(file);
  std::vector<float> out(16);
  EXPECT_FAILS(file->read_into("a/vars/9", {DType::kFloat32, {3}}, out.data()), kWeightMissing, "a/vars/9");
  EXPECT_FAILS(file->read_into("a/vars/0", {DType::kFloat32, {4}}, out.data()), kWeightShape, "f16[3]");
  EXPECT_FAILS(file->read_into("a/vars/1", {DType::kFloat32, {3}}, out.data()), kWeightShape, "bf16[3]");
}

TEST(WeightsFile, CopiesKeepAttributesAndUnknownDatasets) {
  const TempFolder folder;
  ASSERT_OK(write_h5(folder / "w.h5", entries(), nullptr));
  const auto source = WeightsFile::open(folder / "w.h5", "w.h5");
  ASSERT_OK(source);
  const std::vector<WeightEntry> some = {entries()[2]};
  ASSERT_OK(write_h5(folder / "copy.h5", some, &*source));
  const auto copy = WeightsFile::open(folder / "copy.h5", "copy.h5");
  ASSERT_OK(copy);
  ASSERT_EQ(copy->datasets().size(), 5u);
  EXPECT_EQ(copy->find("a/vars/1")->type.dtype, DType::kBFloat16);  // recognised only by its attribute
}

TEST(WeightsFile, AWriteThatFailsInTheMiddleIsP601AndTheNextOneWorks) {
  const TempFolder folder;
  const std::vector<float> large(20000);
  std::vector<WeightEntry> list = entries();
  for (int i = 0; i < 8; ++i) list.push_back({fmt::format("c/vars/{}", i), {DType::kFloat32, {20000}}, large.data()});
  for (const rlim_t bytes : {0, 90, 1000, 4000, 30000, 100000, 400000, 640000}) {
    {
      const test::FileSizeLimit limit(bytes);
      EXPECT_FAILS(write_h5(folder / "w.h5", list, nullptr), kWriteFailed, "w.h5");
    }
    EXPECT_EQ(folder.count(), 0u);
  }
  ASSERT_OK(write_h5(folder / "w.h5", list, nullptr));
  EXPECT_EQ(WeightsFile::open(folder / "w.h5", "w.h5").value().datasets().size(), list.size());
}

TEST(WeightsFile, CutShortIsP213) {
  const TempFolder folder;
  ASSERT_OK(write_h5(folder / "w.h5", entries(), nullptr));
  const auto whole = slurp(folder / "w.h5");
  for (size_t length = 0; length < whole.size(); length += 61) {
    spill(folder / "cut.h5", whole.substr(0, length));
    EXPECT_FAILS(WeightsFile::open(folder / "cut.h5", "cut.h5"), kBadWeightsFile, "cut.h5");
  }
}

}  // namespace
}  // namespace plimsoll::engine
