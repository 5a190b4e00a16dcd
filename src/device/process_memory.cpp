#include "device/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace

Bytes resident_bytes() {
  return status_field("VmRSS:");
}
Bytes peak_resident_bytes() {
  return status_field("VmHWM:");
}

bool reset_peak_resident() {
  const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = write(fd, "5", 1) == 1;
  close(fd);
  return done;
}

}  // namespace plimsoll
