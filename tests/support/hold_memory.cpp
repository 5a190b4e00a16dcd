// An fsync that takes PLIMSOLL_HOLD_MIB of memory and keeps it. LD_PRELOAD loads it into a program, to test what the
// program reports at its end about a peak above the plan. Files are synced when they are saved, long after the dry run.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" int fsync(int fd) {
  static bool held = false;
  const char* mib = std::getenv("PLIMSOLL_HOLD_MIB");
  if (!held && mib != nullptr) {
    held = true;
    const size_t bytes = static_cast<size_t>(std::atoll(mib)) << 20;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) std::memset(memory, 1, bytes);
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}
