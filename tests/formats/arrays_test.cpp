// .npy, .npz and IDX, compared with files that NumPy wrote (tests/golden/formats/make.py).
#include <array>
#include <cstring>

#include "formats/idx/idx.h"
#include "formats/npy/header.h"
#include "formats/npy/npy.h"
#include "formats/npz/npz.h"
#include "formats/zip/zip_writer.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::Environment;
using test::FileSizeLimit;
using test::golden;
using test::slurp;
using test::spill;
using test::TempFolder;

template <typename T>
std::vector<T> elements(const ArraySource& array) {
  std::vector<T> out(static_cast<size_t>(array.bytes()) / sizeof(T));
  const auto file = File::open_read(array.path);
  EXPECT_OK(file->pread_exact(array.offset, std::as_writable_bytes(std::span(out))));
  return out;
}

const std::vector<float> kRamp = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
const std::vector<int64_t> kRampDims = {3, 4};

TEST(Npy, ReadsEveryVersion) {
  for (const auto* name : {"float32.npy", "version2.npy", "version3.npy"}) {
    const auto array = open_npy(golden(name));
    ASSERT_OK(array);
    EXPECT_EQ(array->dtype, DType::kFloat32);
    EXPECT_EQ(array->dims, kRampDims);
    EXPECT_EQ(elements<float>(*array), kRamp);
    EXPECT_EQ(array->rows(), 3);
    EXPECT_EQ(array->row_bytes(), 16);
  }
}

TEST(Npy, ReadsOtherTypesAndShapes) {
  EXPECT_EQ(elements<uint8_t>(open_npy(golden("uint8.npy")).value()), (std::vector<uint8_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(elements<double>(open_npy(golden("scalar.npy")).value()), std::vector<double>{1.5});
  const auto empty = open_npy(golden("empty.npy"));
  ASSERT_OK(empty);
  EXPECT_EQ(empty->dims, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(empty->bytes(), 0);
  const auto text = open_npy(golden("text.npy"));  // ["a", "bc"] of dtype <U2
  ASSERT_OK(text);
  EXPECT_EQ(text->text, TextKind::kUtf32);
  EXPECT_EQ(text->dims, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(elements<uint8_t>(*text)[12], 'c');
}

TEST(Npy, RefusesWhatCannotBeStreamedAndSaysTheRemedy) {
  EXPECT_FAILS(open_npy(golden("fortran.npy")), kBadDataFile, "np.ascontiguousarray");
  EXPECT_FAILS(open_npy(golden("big-endian.npy")), kBadDataFile, "big-endian");
  EXPECT_FAILS(open_npy(golden("objects.npy")), kBadDataFile, "Python objects");
  EXPECT_FAILS(open_npy(golden("complex.npy")), kBadDataFile, "complex");
  EXPECT_FAILS(open_npy(golden("structure.npy")), kBadDataFile, "structures");
  EXPECT_FAILS(open_npy(golden("ubyte.idx")), kBadDataFile, "NUMPY");
  EXPECT_FAILS(open_npy(golden("none.npy")), kFileUnreadable, "none.npy");
}

TEST(Npy, CutShortAnywhereIsAnError) {
  const TempFolder folder;
  const auto whole = slurp(golden("float32.npy"));
  for (size_t length = 0; length < whole.size(); ++length) {
    spill(folder / "cut.npy", whole.substr(0, length));
    EXPECT_FAILS(open_npy(folder / "cut.npy"), kBadDataFile, "cut.npy");
  }
}

TEST(Npy, HeaderErrorsNameThePlace) {
  const std::array<std::pair<const char*, const char*>, 8> cases = {
      {{"", "expected '{' at character 0"},
       {"{'descr' '<f4'}", "expected ':' at character 9"},
       {"{'descr': <f4}", "expected a quoted word at character 10"},
       {"{'descr': '<f4', 'shape': (1,)}", "keys descr, fortran_order and shape"},
       {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "expected True or False at character 34"},
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "expected a dimension at character 51"},
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "a dimension"},
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "the end of the header"}}};
  for (const auto& [text, message] : cases) EXPECT_FAILS(parse_npy_header(text), kBadDataFile, message);
  EXPECT_EQ(parse_npy_header("{'shape': (3L, 4L), 'fortran_order': False, 'descr': \"<f4\"}\n").value().shape,
            kRampDims);
}

TEST(Npy, ShapesThatOverflowAreRefused) {
  const TempFolder folder;
  auto text = npy_header(DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40});
  spill(folder / "huge.npy", text);
  EXPECT_FAILS(open_npy(folder / "huge.npy"), kBadDataFile, "too large");
  text = npy_header(DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40, 0});
  spill(folder / "hidden.npy", text);
  EXPECT_FAILS(open_npy(folder / "hidden.npy"), kBadDataFile, "too large");
}

TEST(Npy, WritesWhatNumPyWrites) {
  const TempFolder folder;
  auto writer = NpyWriter::create(folder / "out.npy", DType::kFloat32, kRampDims);
  ASSERT_OK(writer);
  for (size_t row = 0; row < 3; ++row) ASSERT_OK(writer->write(std::as_bytes(std::span(kRamp).subspan(4 * row, 4))));
  ASSERT_OK(writer->commit());
  EXPECT_EQ(slurp(folder / "out.npy"), slurp(golden("float32.npy")));
}

TEST(Npy, AnUnfinishedArrayIsNotCommitted) {
  const TempFolder folder;
  {
    auto writer = NpyWriter::create(folder / "out.npy", DType::kFloat32, kRampDims);
    ASSERT_OK(writer);
    EXPECT_FAILS(writer->commit(), kInternal, "its shape needs 176");
  }
  EXPECT_EQ(folder.count(), 0u);
  const FileSizeLimit limit(100);
  EXPECT_FAILS(NpyWriter::create(folder / "out.npy", DType::kFloat32, kRampDims), kWriteFailed, "176 bytes");
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Npz, StoredArraysAreReadInPlace) {
  const auto path = golden("stored.npz");
  EXPECT_EQ(npz_names(path).value(), (std::vector<std::string>{"x", "y"}));
  const auto x = open_npz(path, "x");
  ASSERT_OK(x);
  EXPECT_EQ(x->path, path);
  EXPECT_EQ(elements<float>(*x), kRamp);
  EXPECT_EQ(elements<int64_t>(open_npz(path, "y").value()), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_FAILS(open_npz(path, "z"), kBadDataFile, "its arrays: x, y");
}

TEST(Npz, CompressedArraysAreUnpackedOnce) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  const auto x = open_npz(golden("compressed.npz"), "x");
  ASSERT_OK(x);
  EXPECT_EQ(elements<float>(*x), kRamp);
  EXPECT_EQ(elements<int64_t>(open_npz(golden("compressed.npz"), "y").value()), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_NE(x->path.find(folder / "cache"), std::string::npos);
  const auto written = std::filesystem::last_write_time(x->path);
  EXPECT_EQ(open_npz(golden("compressed.npz"), "x").value().path, x->path);
  EXPECT_EQ(std::filesystem::last_write_time(x->path), written);
}

TEST(Npz, DamageInCompressedDataIsAnErrorAndLeavesNoCache) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  std::filesystem::create_directories(folder / "cache");
  const auto whole = slurp(golden("compressed.npz"));
  const auto begin = whole.find("x.npy") + 5;
  for (size_t at = begin + 20; at < begin + 60; ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    spill(folder / "damaged.npz", damaged);
    EXPECT_FALSE(open_npz(folder / "damaged.npz", "x").has_value()) << at;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "cache"));
}

TEST(Npz, CutShortAnywhereIsAnError) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  for (const auto* name : {"stored.npz", "compressed.npz"}) {
    const auto whole = slurp(golden(name));
    for (size_t length = 0; length < whole.size(); ++length) {
      spill(folder / "cut.npz", whole.substr(0, length));
      EXPECT_FAILS(open_npz(folder / "cut.npz", "x"), kBadDataFile, "cut.npz");
    }
  }
}

TEST(Npz, AnyFlippedByteIsAnErrorOrHarmless) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  const auto whole = slurp(golden("stored.npz"));
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      spill(folder / "damaged.npz", damaged);
      const auto array = open_npz(folder / "damaged.npz", "x");
      if (!array) continue;
      const auto size = static_cast<int64_t>(std::filesystem::file_size(array->path));
      EXPECT_LE(array->offset + array->bytes(), size) << at;
    }
  }
}

TEST(Idx, BytesAreReadInPlace) {
  const auto array = open_idx(golden("ubyte.idx"));
  ASSERT_OK(array);
  EXPECT_EQ(array->path, golden("ubyte.idx"));
  EXPECT_EQ(array->dims, (std::vector<int64_t>{2, 3, 4}));
  const auto values = elements<uint8_t>(*array);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(values[i], i);
  EXPECT_EQ(elements<int8_t>(open_idx(golden("i1.idx")).value()), (std::vector<int8_t>{-2, -1, 0, 1, 2, 3}));
}

TEST(Idx, WiderElementsAndGzipAreUnpacked) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  EXPECT_EQ(elements<int16_t>(open_idx(golden("i2.idx")).value()), (std::vector<int16_t>{-2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(elements<int32_t>(open_idx(golden("i4.idx")).value()), (std::vector<int32_t>{-2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(elements<float>(open_idx(golden("f4.idx")).value()), (std::vector<float>{-2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(elements<double>(open_idx(golden("f8.idx")).value()), (std::vector<double>{-2, -1, 0, 1, 2, 3}));
  const auto array = open_idx(golden("ubyte.idx.gz"));
  ASSERT_OK(array);
  EXPECT_EQ(array->dims, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(elements<uint8_t>(*array), elements<uint8_t>(open_idx(golden("ubyte.idx")).value()));
}

TEST(Idx, CutShortAnywhereIsAnErrorAndLeavesNoCache) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  std::filesystem::create_directories(folder / "cache");
  for (const auto* name : {"ubyte.idx", "f4.idx", "ubyte.idx.gz"}) {
    const auto whole = slurp(golden(name));
    for (size_t length = 0; length < whole.size(); ++length) {
      spill(folder / "cut", whole.substr(0, length));
      EXPECT_FAILS(open_idx(folder / "cut"), kBadDataFile, "cut");
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "cache"));
}

TEST(Idx, MoreBytesThanTheShapeSaysIsAnError) {
  const TempFolder folder;
  spill(folder / "long", slurp(golden("ubyte.idx")) + "x");
  EXPECT_FAILS(open_idx(folder / "long"), kBadDataFile, "needs 24 bytes, but there are 25");
}

TEST(Idx, DamagedGzipIsAnErrorOrHarmless) {
  const TempFolder folder;
  const Environment cache("PLIMSOLL_CACHE", folder / "cache");
  const auto whole = slurp(golden("ubyte.idx.gz"));
  for (size_t at = 10; at < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    spill(folder / "damaged", damaged);
    const auto array = open_idx(folder / "damaged");
    // The last bits of the last byte of a deflate stream are unused.
    EXPECT_TRUE(!array || elements<uint8_t>(*array) == elements<uint8_t>(open_idx(golden("ubyte.idx")).value())) << at;
  }
}

}  // namespace
}  // namespace plimsoll::engine
