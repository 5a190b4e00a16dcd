#include "backends/cuda/runtime/cache.h"

#include <fstream>
#include <iterator>

#include "formats/file/cache.h"

namespace plimsoll::cuda {

std::optional<std::string> read_cached(const std::string& name) {
  const auto folder = cache_folder();
  if (!folder) return std::nullopt;
  std::ifstream file(*folder + "/" + name, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_cached(const std::string& name, const std::string& content) {
  const auto folder = cache_folder();
  if (!folder) return;
  auto file = AtomicFile::create(*folder + "/" + name);
  if (file && file->write(bytes_of_text(content))) (void)file->commit();
}

}  // namespace plimsoll::cuda
