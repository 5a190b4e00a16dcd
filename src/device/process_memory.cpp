#include "device/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace plimsoll {
namespace {

// A field of /proc/self/status, in KiB there; 0 if it is not to be had.
Bytes status_field(const char* field) {
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[4096];
  const ssize_t count = read(fd, text, sizeof text - 1);
  close(fd);
  if (count <= 0) return 0;
  text[count] = '\0';
  const char* at = std::strstr(text, field);
  return at == nullptr ? 0 : std::atoll(at + std::strlen(field)) * kKiB;
}

// The kernel keeps VmHWM from counters it sums up only now and then, so it can lie some pages below a VmRSS read
// before.
std::atomic<Bytes> highest_seen{0};

}  // namespace

Bytes resident_bytes() {
  const Bytes now = status_field("VmRSS:");
  for (Bytes seen = highest_seen; now > seen && !highest_seen.compare_exchange_weak(seen, now);) continue;
  return now;
}

Bytes peak_resident_bytes() {
  return std::max(status_field("VmHWM:"), highest_seen.load());
}

}  // namespace plimsoll
