#include "formats/zip/zip_reader.h"

#include "formats/zip/zip_writer.h"
#include "tests/formats/support.h"
#include "tests/formats/write_zip.h"

namespace plimsoll::engine {
namespace {

using test::slurp;
using test::spill;
using test::TempFolder;
using test::write_zip;

constexpr auto kBad = ErrorCode::kNotAKerasFile;

TEST(Zip, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  const std::string large(200000, 'x');
  write_zip(folder / "z", {{"a.txt", "alpha"}, {"folder/b", large}, {"empty", ""}});
  const auto zip = ZipReader::open(folder / "z", kBad);
  ASSERT_OK(zip);
  ASSERT_EQ(zip->entries().size(), 3u);
  EXPECT_EQ(zip->text(*zip->find("a.txt"), 100).value(), "alpha");
  EXPECT_EQ(zip->text(*zip->find("folder/b"), 1 << 20).value(), large);
  EXPECT_EQ(zip->text(*zip->find("empty"), 0).value(), "");
  EXPECT_FAILS(zip->text(*zip->find("a.txt"), 4), kNotAKerasFile, "at most");
}

// Python reads the last entry with a name, other programs the first. The contents must not depend on the reader.
TEST(Zip, ANameThatStandsTwiceIsRefused) {
  const TempFolder folder;
  write_zip(folder / "z", {{"config.json", "{}"}, {"a", "alpha"}, {"config.json", "{\"b\":1}"}});
  EXPECT_FAILS(ZipReader::open(folder / "z", kBad), kNotAKerasFile, "two entries are named config.json");
}

TEST(Zip, AnEntryThatCannotUnpackToItsSizeIsRefused) {
  const TempFolder folder;
  write_zip(folder / "z", {{"a", "alpha"}});
  auto text = slurp(folder / "z");
  const auto directory = text.find("PK\x01\x02");
  text[directory + 10] = 8;                          // deflated
  text.replace(directory + 24, 4, "\0\0\0\x10", 4);  // five bytes that would decompress to 256 MiB
  spill(folder / "z", text);
  EXPECT_FAILS(ZipReader::open(folder / "z", kBad), kNotAKerasFile,
               "5 compressed bytes cannot decompress to 268435456");
}

TEST(Zip, TooManyEntriesAreRefused) {
  const TempFolder folder;
  std::string text;
  const auto put = [&](uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  };
  const uint64_t entries = 100'001, bytes = entries * 46;
  text.assign(bytes, '\0');
  put(0x06064b50, 4), put(44, 8), put(45, 2), put(45, 2), put(0, 8);  // the ZIP64 end of central directory record
  put(entries, 8), put(entries, 8), put(bytes, 8), put(0, 8);
  put(0x07064b50, 4), put(0, 4), put(bytes, 8), put(1, 4);
  put(0x06054b50, 4), put(0, 4), put(0xffff, 2), put(0xffff, 2), put(0xffffffff, 4), put(0xffffffff, 4), put(0, 2);
  spill(folder / "z", text);
  EXPECT_FAILS(ZipReader::open(folder / "z", kBad), kNotAKerasFile, "the limit is 100000 entries");
}

TEST(Zip, ACommentAtTheEndIsSkipped) {
  const TempFolder folder;
  write_zip(folder / "z", {{"a", "alpha"}});
  auto text = slurp(folder / "z");
  text[text.size() - 2] = 9;
  spill(folder / "z", text + "a comment");
  const auto zip = ZipReader::open(folder / "z", kBad);
  ASSERT_OK(zip);
  EXPECT_EQ(zip->text(*zip->find("a"), 10).value(), "alpha");
}

// More than 4 GiB, in a file with a hole: the writer must use ZIP64, and the reader must read it.
TEST(Zip, EntriesBeyondFourGigabytesUseZip64) {
  const TempFolder folder;
  const int64_t bytes = 5 * kGiB;
  {
    auto file = AtomicFile::create(folder / "z");
    ASSERT_OK(file);
    ZipWriter zip(*file);
    const std::vector<std::byte> zeros(static_cast<size_t>(16 * kMiB));
    if (std::filesystem::space(folder.path()).available < static_cast<uint64_t>(2 * bytes)) GTEST_SKIP() << "no space";
    if (std::getenv("PLIMSOLL_SLOW_TESTS") == nullptr) GTEST_SKIP() << "writes 5 GiB: set PLIMSOLL_SLOW_TESTS";
    ASSERT_OK(zip.add("large", bytes, [&](const Sink& sink) -> Status {
      for (int64_t done = 0; done < bytes; done += 16 * kMiB) PLIMSOLL_TRY(sink(zeros));
      return {};
    }));
    ASSERT_OK(zip.add_text("after", "tail"));
    ASSERT_OK(zip.finish());
    ASSERT_OK(file->commit());
  }
  const auto zip = ZipReader::open(folder / "z", kBad);
  ASSERT_OK(zip);
  EXPECT_EQ(zip->find("large")->bytes, bytes);
  EXPECT_GT(zip->find("after")->header_offset, bytes);
  EXPECT_EQ(zip->text(*zip->find("after"), 10).value(), "tail");
}

TEST(Zip, AnyFlippedByteIsAnErrorOrHarmless) {
  const TempFolder folder;
  write_zip(folder / "z", {{"a", "alpha"}, {"b", "beta"}});
  const auto whole = slurp(folder / "z");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      spill(folder / "d", damaged);
      const auto zip = ZipReader::open(folder / "d", kBad);
      if (!zip) {
        EXPECT_EQ(zip.error().code, kBad);
        continue;
      }
      const auto* entry = zip->find("a");
      if (entry == nullptr) continue;
      const auto text = zip->text(*entry, 1000);
      EXPECT_TRUE(text ? *text == "alpha" : text.error().code == kBad) << at;
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine
