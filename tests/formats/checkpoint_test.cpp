#include "formats/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::FileSizeLimit;
using test::slurp;
using test::spill;
using test::TempFolder;

const std::vector<float> kWeights = {1, 2, 3, 4, 5, 6};
const int64_t kStep = 42;
const TensorType kWeightsType = {DType::kFloat32, {2, 3}};
const TensorType kStepType = {DType::kInt64, {}};
const nlohmann::json kHeader = {{"step", 42}, {"plan", "text"}, {"loss", 0.25}};

Status write(const std::string& path) {
  const std::vector<CheckpointTensor> tensors = {{"dense/kernel", kWeightsType, kWeights.data()},
                                                 {"step", kStepType, &kStep}};
  return write_checkpoint(path, kHeader, tensors);
}

TEST(Checkpoint, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  ASSERT_OK(write(folder / "c"));
  const auto checkpoint = open_checkpoint(folder / "c");
  ASSERT_OK(checkpoint);
  EXPECT_EQ(checkpoint->header(), kHeader);
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  for (const auto& entry : checkpoint->tensors()) EXPECT_EQ(entry.offset % 64, 0);
  std::vector<float> weights(6);
  int64_t step = 0;
  ASSERT_OK(checkpoint->read_into("dense/kernel", kWeightsType, weights.data()));
  ASSERT_OK(checkpoint->read_into("step", kStepType, &step));
  EXPECT_EQ(weights, kWeights);
  EXPECT_EQ(step, 42);
  EXPECT_EQ(folder.count(), 1u);
}

TEST(Checkpoint, ManyTensorsAndLargeOnes) {
  const TempFolder folder;
  std::vector<std::vector<float>> values;
  std::vector<CheckpointTensor> tensors;
  for (size_t i = 0; i < 300; ++i) values.emplace_back(i == 7 ? 700001 : i, static_cast<float>(i));
  for (size_t i = 0; i < values.size(); ++i)
    tensors.push_back(
        {fmt::format("t{}", i), {DType::kFloat32, Shape({static_cast<int64_t>(values[i].size())})}, values[i].data()});
  ASSERT_OK(write_checkpoint(folder / "c", {}, tensors));
  const auto checkpoint = open_checkpoint(folder / "c");
  ASSERT_OK(checkpoint);
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<float> out(values[i].size());
    ASSERT_OK(checkpoint->read_into(tensors[i].name, tensors[i].type, out.data()));
    EXPECT_EQ(out, values[i]);
  }
}

TEST(Checkpoint, NoTensorsAtAll) {
  const TempFolder folder;
  ASSERT_OK(write_checkpoint(folder / "c", kHeader, {}));
  EXPECT_EQ(open_checkpoint(folder / "c").value().header(), kHeader);
}

TEST(Checkpoint, AMissingTensorOrAnotherTypeIsP212) {
  const TempFolder folder;
  ASSERT_OK(write(folder / "c"));
  const auto checkpoint = open_checkpoint(folder / "c");
  ASSERT_OK(checkpoint);
  std::vector<float> out(6);
  EXPECT_FAILS(checkpoint->read_into("bias", kWeightsType, out.data()), kBadCheckpoint, "tensor bias is missing");
  EXPECT_FAILS(checkpoint->read_into("dense/kernel", {DType::kFloat32, {3, 2}}, out.data()), kBadCheckpoint,
               "f32[2,3]");
}

TEST(Checkpoint, NoFlippedByteGivesWrongData) {
  const TempFolder folder;
  ASSERT_OK(write(folder / "c"));
  const auto whole = slurp(folder / "c");
  int harmless = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char flip : {'\x01', '\x20', '\xff'}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      spill(folder / "d", damaged);
      const auto checkpoint = open_checkpoint(folder / "d");
      if (!checkpoint) {
        EXPECT_EQ(checkpoint.error().code, ErrorCode::kBadCheckpoint);
        EXPECT_NE(checkpoint.error().what.find(folder / "d"), std::string::npos);
        continue;
      }
      std::vector<float> weights(6);
      int64_t step = 0;
      const auto first = checkpoint->read_into("dense/kernel", kWeightsType, weights.data());
      const auto second = checkpoint->read_into("step", kStepType, &step);
      EXPECT_EQ(checkpoint->header(), kHeader);
      EXPECT_TRUE(!first || weights == kWeights) << at;
      EXPECT_TRUE(!second || step == kStep) << at;
      EXPECT_TRUE(first || first.error().code == ErrorCode::kBadCheckpoint) << at;
      if (first && second) ++harmless;
    }
  }
  EXPECT_LT(harmless, 3 * 128);  // the zeros between tensors
}

TEST(Checkpoint, CutShortAnywhereIsP212) {
  const TempFolder folder;
  ASSERT_OK(write(folder / "c"));
  const auto whole = slurp(folder / "c");
  for (size_t length = 0; length < whole.size(); ++length) {
    spill(folder / "d", whole.substr(0, length));
    EXPECT_FAILS(open_checkpoint(folder / "d"), kBadCheckpoint, folder / "d");
  }
  EXPECT_FAILS(open_checkpoint(folder / "none"), kFileUnreadable, "none");
}

TEST(Checkpoint, AFullDiskKeepsTheOldOne) {
  const TempFolder folder;
  ASSERT_OK(write(folder / "c"));
  const auto before = slurp(folder / "c");
  {
    const std::vector<float> large(100000);
    const std::vector<CheckpointTensor> tensors = {{"t", {DType::kFloat32, {100000}}, large.data()}};
    const FileSizeLimit limit(10000);
    EXPECT_FAILS(write_checkpoint(folder / "c", {}, tensors), kWriteFailed, "are needed");
  }
  EXPECT_EQ(slurp(folder / "c"), before);
  EXPECT_EQ(folder.count(), 1u);
  EXPECT_FAILS(write(folder / "none/c"), kNotWritable, "none");
}

}  // namespace
}  // namespace plimsoll::engine
