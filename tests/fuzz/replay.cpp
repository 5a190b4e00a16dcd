// Runs a fuzz target once on every given file, and on every file of every given folder, with a 2 GiB limit on address
// space.
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

bool replay(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return false;
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);  // so that the last name is printed even if the target does not return
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer reserves all address space
  const rlimit most{rlim_t{2} << 30, rlim_t{2} << 30};
  setrlimit(RLIMIT_AS, &most);
#endif
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      count += replay(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) count += replay(entry.path());
  }
  std::printf("%zu files\n", count);
  return count > 0 ? 0 : 2;
}
