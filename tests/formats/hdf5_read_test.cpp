// HDF5 files of every kind that h5py writes (tests/golden/formats/hdf5/make.py), and malicious files.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/hdf5/weights_file.h"
#include "formats/keras/archive.h"
#include "formats/limits.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::golden;
using test::slurp;
using test::spill;
using test::TempFolder;

std::vector<std::string> files_of(const std::string& folder, const std::string& ending) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string corpus(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/corpus/" + name;
}

// Returns the elements as float64, which represents every value of the golden files.
std::vector<double> values_of(const WeightsFile& file, const Dataset& dataset) {
  const auto count = static_cast<size_t>(dataset.type.shape.elements());
  std::vector<double> values(count);
  if (dataset.type.dtype == DType::kBool) {
    std::vector<uint8_t> flags(count);
    EXPECT_OK(file.read_into(dataset.path, dataset.type, flags.data()));
    std::copy(flags.begin(), flags.end(), values.begin());
  } else if (dataset.type.dtype == DType::kBFloat16) {
    std::vector<uint16_t> halves(count);
    EXPECT_OK(file.read_into(dataset.path, dataset.type, halves.data()));
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = uint32_t{halves[i]} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      values[i] = value;
    }
  } else {
    EXPECT_OK(file.read_into(dataset.path, {DType::kFloat64, dataset.type.shape}, values.data()));
  }
  return values;
}

Result<AtomicFile> write_copy(const WeightsFile& source, const std::string& path) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(write_weights(file, {}, &source));
  EXPECT_LE(file.position(), expected_weights_bytes({}, &source));
  return file;
}

Status copy(const WeightsFile& source, const std::string& path) {
  PLIMSOLL_ASSIGN(auto file, write_copy(source, path));
  return file.commit();
}

// Returns whether a dataset can grow and uses the newer format, which h5py never does by default.
bool is_growing(const std::string& file, const std::string& path) {
  const bool newer = file.find("v110") != std::string::npos || file.find("latest") != std::string::npos;
  return newer && (path == "unlimited" || path == "unlimited_twice");
}

class Hdf5File : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return golden("hdf5/" + GetParam()); }
  nlohmann::json expected() const {
    static const auto all = nlohmann::json::parse(slurp(golden("hdf5/expected.json")));
    return all.at(GetParam());
  }
};

TEST_P(Hdf5File, IsReadAsH5pyReadsIt) {
  const auto file = WeightsFile::open(path(), GetParam());
  ASSERT_OK(file);
  const auto all = expected();
  EXPECT_EQ(file->datasets().size(), all.size());
  for (const auto& [name, want] : all.items()) {
    const auto* dataset = file->find(name);
    ASSERT_NE(dataset, nullptr) << name;
    if (want.is_null() || name == "lzf" || is_growing(GetParam(), name)) {
      EXPECT_NE(dataset->unreadable, "") << name;
      if (!want.is_null()) {
        EXPECT_EQ(dataset->type.shape.dims, want["shape"].get<std::vector<int64_t>>()) << name;
      }
      std::vector<char> nothing;
      EXPECT_FAILS(file->read_into(name, dataset->type, nothing.data()), kBadWeightsFile, name);
      continue;
    }
    ASSERT_EQ(dataset->unreadable, "") << name;
    EXPECT_EQ(keras_name(dataset->type.dtype), want["dtype"].get<std::string>()) << name;
    EXPECT_EQ(dataset->type.shape.dims, want["shape"].get<std::vector<int64_t>>()) << name;
    EXPECT_EQ(values_of(*file, *dataset), want["values"].get<std::vector<double>>()) << name;
  }
}

TEST_P(Hdf5File, IsCopiedWithAllItsNumbers) {
  const TempFolder folder;
  const auto file = WeightsFile::open(path(), GetParam());
  ASSERT_OK(file);
  ASSERT_OK(copy(*file, folder / "copy.h5"));
  ASSERT_OK(copy(*file, folder / "again.h5"));
  EXPECT_TRUE(slurp(folder / "copy.h5") == slurp(folder / "again.h5")) << "two copies differ";
  const auto copied = WeightsFile::open(folder / "copy.h5", "copy.h5");
  ASSERT_OK(copied);
  for (const auto& dataset : file->datasets()) {
    const auto* other = copied->find(dataset.path);
    ASSERT_EQ(other != nullptr, dataset.kept) << dataset.path;
    if (other == nullptr) continue;
    EXPECT_EQ(other->type, dataset.type) << dataset.path;
    EXPECT_EQ(other->unreadable, dataset.unreadable) << dataset.path;
    if (!dataset.unreadable.empty()) continue;
    EXPECT_EQ(values_of(*copied, *other), values_of(*file, dataset)) << dataset.path;
  }
}

TEST_P(Hdf5File, CutShortIsAnErrorAndNothingElse) {
  const TempFolder folder;
  const auto whole = slurp(path());
  for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 97) {
    spill(folder / "cut.h5", whole.substr(0, length));
    EXPECT_FAILS(WeightsFile::open(folder / "cut.h5", "cut.h5"), kBadWeightsFile, "cut.h5");
  }
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& path : files_of(golden("hdf5"), ".h5")) names.push_back(std::filesystem::path(path).filename());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Kinds, Hdf5File, testing::ValuesIn(golden_names()), [](const auto& name) {
  std::string text = name.param;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return text;
});

// A malicious file may only fail with this error.
template <typename T>
void expect_refusal(const Result<T>& result) {
  if (result) return;
  EXPECT_EQ(result.error().code, ErrorCode::kBadWeightsFile) << to_text(result.error());
}

// Reads and copies everything, as loading and saving do.
void use_all(const WeightsFile& file, const std::string& scratch) {
  for (const auto& dataset : file.datasets()) {
    if (!dataset.unreadable.empty() || dataset.type.bytes() > kMiB) continue;
    std::vector<std::byte> out(static_cast<size_t>(dataset.type.bytes()));
    expect_refusal(file.read_into(dataset.path, dataset.type, out.data()));
  }
  expect_refusal(write_copy(file, scratch));
}

int64_t peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// With these files HDF5 1.10 used 8 GiB, looped endlessly or crashed. Here each must be cheap, whether it is accepted
// or not.
TEST(HostileHdf5, EveryFileOfTheCorpusCostsLittle) {
  const TempFolder folder;
  auto paths = files_of(corpus("hdf5"), ".h5");
  ASSERT_GE(paths.size(), 7u);
  paths.push_back(corpus("zip/h5_1600_groups.keras"));
  for (const auto& path : paths) {
    const int64_t before = peak_kib();
    const auto start = std::chrono::steady_clock::now();
    if (path.ends_with(".keras")) {
      const auto archive = open_keras(path);
      if (archive && archive->weights) use_all(*archive->weights, folder / "copy.h5");
      expect_refusal(archive);
    } else {
      const auto file = WeightsFile::open(path, "hostile");
      if (file) use_all(*file, folder / "copy.h5");
      expect_refusal(file);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 1.0) << path;
    EXPECT_LT(peak_kib() - before, 64 * 1024) << path;
  }
}

TEST(HostileHdf5, GroupsNestedTooDeepAreRefused) {
  const TempFolder folder;
  const float value = 1;
  std::string path;
  for (int i = 0; i < limits::kHdf5Depth; ++i) path += "g/";
  for (const bool too_deep : {false, true}) {
    auto file = AtomicFile::create(folder / "deep.h5");
    ASSERT_OK(file);
    const std::vector<WeightEntry> entries = {{path.substr(too_deep ? 0 : 2) + "0", {DType::kFloat32, {}}, &value}};
    ASSERT_OK(write_weights(*file, entries, nullptr));
    ASSERT_OK(file->commit());
    const auto opened = WeightsFile::open(folder / "deep.h5", "deep.h5");
    if (too_deep)
      EXPECT_FAILS(opened, kBadWeightsFile, "nested deeper than 64 levels");
    else
      EXPECT_OK(opened);
  }
}

// The file that write_weights() makes from two vectors, with some of its bytes changed.
class EditedHdf5 : public testing::Test {
 protected:
  void SetUp() override {
    auto file = AtomicFile::create(folder_ / "w.h5");
    ASSERT_OK(file);
    const std::vector<WeightEntry> entries = {{"a", {DType::kFloat32, {100}}, values_.data()},
                                              {"b", {DType::kFloat32, {50}}, values_.data()}};
    ASSERT_OK(write_weights(*file, entries, nullptr));
    ASSERT_OK(file->commit());
    text_ = slurp(folder_ / "w.h5");
  }

  static std::string number(uint64_t value) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &value, 8);
    return text;
  }
  void replace(const std::string& from, const std::string& to) {
    const size_t at = text_.find(from);
    ASSERT_NE(at, std::string::npos);
    text_.replace(at, to.size(), to);
  }
  Result<WeightsFile> open() {
    spill(folder_ / "edited.h5", text_);
    return WeightsFile::open(folder_ / "edited.h5", "edited.h5");
  }

  TempFolder folder_;
  std::vector<float> values_ = std::vector<float>(100, 1.5f);
  std::string text_;
};

TEST_F(EditedHdf5, ElementsOutsideOfTheFile) {
  // The layout message of "a": version 3, contiguous, at byte 128, 400 bytes.
  for (const uint64_t address : {uint64_t{1} << 62, ~uint64_t{0} - 1, static_cast<uint64_t>(text_.size()) - 100}) {
    SetUp();
    replace("\3\1" + number(128), "\3\1" + number(address));
    EXPECT_FAILS(open(), kBadWeightsFile, "outside the file");
  }
}

TEST_F(EditedHdf5, ShapesBeyondTheFile) {
  replace(number(100), number(uint64_t{1} << 40));
  EXPECT_FAILS(open(), kBadWeightsFile, "outside the file");
  SetUp();
  replace(number(100), number(~uint64_t{0}));
  const auto file = open();
  ASSERT_OK(file);
  EXPECT_EQ(file->find("a")->unreadable, "its shape is too large");
}

TEST_F(EditedHdf5, GroupsThatHoldThemselvesAreEnteredOnce) {
  const auto file = open();
  ASSERT_OK(file);
  replace(number(file->find("b")->address), text_.substr(64, 8));  // the root's header address, from the superblock
  const auto looped = open();
  ASSERT_OK(looped);
  EXPECT_EQ(looped->datasets().size(), 1u);
}

// Each dataset lies inside the file, but all of them together are larger than it.
TEST_F(EditedHdf5, DatasetsThatShareElementsAreRefused) {
  std::vector<WeightEntry> entries;
  for (int i = 0; i < 40; ++i) entries.push_back({fmt::format("x{}", i), {DType::kFloat32, {100}}, values_.data()});
  auto file = AtomicFile::create(folder_ / "many.h5");
  ASSERT_OK(file);
  ASSERT_OK(write_weights(*file, entries, nullptr));
  ASSERT_OK(file->commit());
  const auto many = WeightsFile::open(folder_ / "many.h5", "many.h5");
  ASSERT_OK(many);
  text_ = slurp(folder_ / "many.h5");
  for (const auto& each : many->datasets()) {
    // After two message headers, in the dataspace message.
    const auto shape = static_cast<size_t>(each.address) + 16 + 8 + 8;
    text_.replace(shape, 8, number(2000));
    const size_t layout = text_.find("\3\1", shape);
    text_.replace(layout + 2, 8, number(128));
  }
  EXPECT_FAILS(open(), kBadWeightsFile, "overlap");
}

TEST_F(EditedHdf5, BytesThatAreNoBooleanBecomeOne) {
  const std::vector<uint8_t> flags = {0, 1, 77, 255};
  auto file = AtomicFile::create(folder_ / "bool.h5");
  ASSERT_OK(file);
  const std::vector<WeightEntry> entries = {{"flags", {DType::kBool, {4}}, flags.data()}};
  ASSERT_OK(write_weights(*file, entries, nullptr));
  ASSERT_OK(file->commit());
  std::vector<uint8_t> out(4);
  const auto opened = WeightsFile::open(folder_ / "bool.h5", "bool.h5");
  ASSERT_OK(opened);
  ASSERT_OK(opened->read_into("flags", {DType::kBool, {4}}, out.data()));
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 1, 1, 1}));
}

// Sets every single byte of a small file to other values: the result must be an error or a file, never an exception.
TEST_F(EditedHdf5, NoSingleByteDoesHarm) {
  const std::string whole = text_;
  for (size_t at = 0; at < whole.size(); at += at < 128 || at > 700 ? 1 : 16) {
    for (const int value : {0x00, 0x01, 0xff}) {
      text_ = whole;
      text_[at] = static_cast<char>(value);
      const auto file = open();
      if (file) use_all(*file, folder_ / "copy.h5");
      expect_refusal(file);
    }
  }
}

TEST(Hdf5Numbers, AreConvertedToTheNearest) {
  const TempFolder folder;
  const std::vector<double> values = {0,      -0.0, 1.0 / 3, 65519, 65520, -1e300, 6e-8,
                                      2.9e-8, 2049, 1e-4,    NAN,   300.7, -300.7};
  auto file = AtomicFile::create(folder / "w.h5");
  ASSERT_OK(file);
  const int64_t count = static_cast<int64_t>(values.size());
  const std::vector<WeightEntry> entries = {{"d", {DType::kFloat64, {count}}, values.data()}};
  ASSERT_OK(write_weights(*file, entries, nullptr));
  ASSERT_OK(file->commit());
  const auto opened = WeightsFile::open(folder / "w.h5", "w.h5");
  ASSERT_OK(opened);
  std::vector<uint16_t> halves(values.size());
  ASSERT_OK(opened->read_into("d", {DType::kFloat16, {count}}, halves.data()));
  EXPECT_EQ(halves, (std::vector<uint16_t>{0x0000, 0x8000, 0x3555, 0x7bff, 0x7c00, 0xfc00, 0x0001, 0x0000, 0x6800,
                                           0x068e, 0x7e00, 0x5cb3, 0xdcb3}));
  std::vector<int8_t> bytes(values.size());
  ASSERT_OK(opened->read_into("d", {DType::kInt8, {count}}, bytes.data()));
  EXPECT_EQ(bytes, (std::vector<int8_t>{0, 0, 0, 127, 127, -128, 0, 0, 127, 0, 0, 127, -128}));
}

TEST(Hdf5Groups, OfManyMembersAreFoundAgain) {
  const TempFolder folder;
  for (const int count : {0, 1, 8, 9, 256, 257, 9000}) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    std::vector<WeightEntry> entries;
    for (int i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = i;
      entries.push_back({fmt::format("vars/{}", i), {DType::kInt32, {}}, &values[static_cast<size_t>(i)]});
    }
    const auto path = folder / fmt::format("{}.h5", count);
    auto file = AtomicFile::create(path);
    ASSERT_OK(file);
    ASSERT_OK(write_weights(*file, entries, nullptr));
    EXPECT_LE(file->position(), expected_weights_bytes(entries, nullptr));
    ASSERT_OK(file->commit());
    const auto opened = WeightsFile::open(path, "w.h5");
    ASSERT_OK(opened);
    ASSERT_EQ(opened->datasets().size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      int32_t value = -1;
      ASSERT_OK(opened->read_into(fmt::format("vars/{}", i), {DType::kInt32, {}}, &value));
      ASSERT_EQ(value, i);
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine
