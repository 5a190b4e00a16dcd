#include "backends/cuda/runtime/cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace plimsoll::cuda {

std::string cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string own = variable("PLIMSOLL_CACHE"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/plimsoll";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/plimsoll";
  return "";
}

std::optional<std::string> read_cached(const std::string& name) {
  const std::string folder = cache_folder();
  if (folder.empty()) return std::nullopt;
  std::ifstream file(folder + "/" + name, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_cached(const std::string& name, const std::string& content) {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string path = folder + "/" + name, aside = path + "." + std::to_string(getpid());
  std::ofstream file(aside, std::ios::binary);
  file << content;
  file.close();
  if (file)
    std::filesystem::rename(aside, path, ignored);
  else
    std::filesystem::remove(aside, ignored);
}

}  // namespace plimsoll::cuda
