#include "device/process_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace plimsoll::engine {
namespace {

// Returns a field of /proc/self/status in bytes (the file has KiB), or 0 if it cannot be read.
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

bool is_loaded(const char* part_of_name) {
  const auto is_it = [](dl_phdr_info* library, size_t, void* name) -> int {
    return library->dlpi_name != nullptr && std::strstr(library->dlpi_name, static_cast<const char*>(name)) != nullptr;
  };
  return dl_iterate_phdr(is_it, const_cast<char*>(part_of_name)) != 0;
}

// compute-sanitizer loads its library into the program when the program first uses a GPU. Before that, only its
// environment variables show it; newer versions set the first one. They mean nothing if no GPU driver is loaded.
bool has_compute_sanitizer() {
  if (is_loaded("libsanitizer-collection.so")) return true;
  const bool named = std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr ||
                     std::getenv("NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN") != nullptr;
  return named && is_loaded("libcuda.so");
}

// The kernel updates VmHWM only now and then, so it can be some pages below a VmRSS that was read before.
std::atomic<Bytes> highest_seen{0};

}  // namespace

Bytes resident_bytes() {
  const Bytes now = status_field("VmRSS:");
  for (Bytes seen = highest_seen; now > seen && !highest_seen.compare_exchange_weak(seen, now);) continue;
  return now;
}

Bytes data_bytes() {
  return status_field("VmData:");
}

Bytes swapped_bytes() {
  return status_field("VmSwap:");
}

Bytes peak_resident_bytes() {
  return std::max(status_field("VmHWM:"), highest_seen.load());
}

Bytes held_by_tools() {
  // Its shadow memory grows with the device memory that it watches, without a bound.
  if (has_compute_sanitizer()) return std::numeric_limits<Bytes>::max() / 2;
  return dlsym(RTLD_DEFAULT, "__lsan_do_leak_check") != nullptr ? kGiB : 0;
}

std::string_view tools_note() {
  if (!has_compute_sanitizer()) return "";
  return "compute-sanitizer is attached: memory outside the arena is not checked against its bound";
}

}  // namespace plimsoll::engine
