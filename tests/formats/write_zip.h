// Returns a zip archive of small entries as text.
#pragma once

#include "formats/zip/zip_writer.h"
#include "tests/formats/support.h"

namespace plimsoll::engine::test {

inline void write_zip(const std::string& path, const std::vector<std::pair<std::string, std::string>>& entries) {
  auto file = AtomicFile::create(path);
  ASSERT_OK(file);
  ZipWriter zip(*file);
  for (const auto& [name, text] : entries) ASSERT_OK(zip.add_text(name, text));
  ASSERT_OK(zip.finish());
  ASSERT_OK(file->commit());
}

}  // namespace plimsoll::engine::test
