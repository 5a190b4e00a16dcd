// A zip archive with corrected checksums: extracts every entry, then opens the archive as a .keras file.
#include "formats/keras/archive.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr size_t kMostEntries = 64;
constexpr size_t kMostUnpacked = 1 << 20;

void unpack_entries(const std::string& path) {
  const auto zip = ZipReader::open(path, ErrorCode::kNotAKerasFile);
  check_error(zip);
  if (!zip) return;
  for (size_t i = 0; i < std::min(zip->entries().size(), kMostEntries); ++i) {
    size_t unpacked = 0;
    check_error(zip->extract(zip->entries()[i], [&](std::span<const std::byte> piece) -> Status {
      unpacked += piece.size();
      if (unpacked > kMostUnpacked) return fail(ErrorCode::kNotAKerasFile, "enough");
      return {};
    }));
    check_error(zip->text(zip->entries()[i], kMostUnpacked));
  }
}

void run(Input input) {
  scratch_folder();
  const std::string repaired = with_zip_checksums(input);
  const InputFile file({reinterpret_cast<const uint8_t*>(repaired.data()), repaired.size()});
  unpack_entries(file.path());
  check_error(open_keras(file.path()));
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
