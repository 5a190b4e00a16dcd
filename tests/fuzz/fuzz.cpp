#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace plimsoll::engine::fuzz {
namespace {

constexpr rlim_t kLargestFile = 64 << 20;

struct Scratch {
  Scratch() {
    path = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/plimsoll-fuzz-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) found("no scratch folder: " + path);
    ::setenv("PLIMSOLL_CACHE", path.c_str(), 1);
    ::setenv("TMPDIR", path.c_str(), 1);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kLargestFile, kLargestFile};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

InputFile::InputFile(Input input) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
  if (fd_ < 0 || ::pwrite(fd_, input.data(), input.size(), 0) != static_cast<ssize_t>(input.size()))
    found("the input cannot be written");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

InputFile::~InputFile() {
  ::close(fd_);
}

const std::string& scratch_folder() {
  static const Scratch scratch;
  return scratch.path;
}

void empty_scratch_folder() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_folder(), ignored))
    std::filesystem::remove_all(entry.path(), ignored);
}

void found(const std::string& what) {
  std::fprintf(stderr, "FOUND: %s\n", what.c_str());
  std::abort();
}

}  // namespace plimsoll::engine::fuzz
