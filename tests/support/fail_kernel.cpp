// Makes a kernel on the GPU fail after a checkpoint was written. LD_PRELOAD loads this library into the program under
// test. From then on the process has lost the device, as if the card had fallen off the bus.
//
//   PLIMSOLL_FAIL_KERNEL=trap:2      after the second checkpoint, by a trap instruction
//   PLIMSOLL_FAIL_KERNEL=stray:1     after the first checkpoint, by a write to an unmapped address
//
// The driver's functions are looked up by name, so this also builds without CUDA.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// PTX, which the driver compiles for the card of the machine.
const char* const kKernels = R"(
.version 6.3
.target sm_75
.address_size 64
.visible .entry trap_kernel()
{
  trap;
  ret;
}
.visible .entry stray_kernel()
{
  .reg .b64 %address;
  .reg .b32 %value;
  mov.u64 %address, 64;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
)";

// Ends the process with a message and a code that cannot be mistaken for the program's own.
[[noreturn]] void give_up(const char* what, int code) {
  std::fprintf(stderr, "fail_kernel: %s gave %d\n", what, code);
  _exit(99);
}

template <typename F>
F driver_function(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* const found = driver == nullptr ? nullptr : dlsym(driver, name);
  if (found == nullptr) give_up(name, -1);
  return reinterpret_cast<F>(found);
}

void check(const char* what, int code) {
  if (code != 0) give_up(what, code);
}

// Uses the context of the calling thread, which is the training thread.
void fail_a_kernel(const char* kernel) {
  void *module = nullptr, *function = nullptr;
  check("cuModuleLoadData", driver_function<int (*)(void**, const void*)>("cuModuleLoadData")(&module, kKernels));
  check("cuModuleGetFunction",
        driver_function<int (*)(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, kernel));
  using Launch =
      int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  check("cuLaunchKernel",
        driver_function<Launch>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  if (driver_function<int (*)()>("cuCtxSynchronize")() == 0) give_up("a kernel that should have failed", 0);
}

bool ends_in(const char* text, const char* end) {
  const size_t length = std::strlen(text), tail = std::strlen(end);
  return length >= tail && std::strcmp(text + length - tail, end) == 0;
}

}  // namespace

// A checkpoint gets its name by a rename (formats/file/atomic_file.cpp).
extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  const int result = real(from, to);
  static const char* const wish = std::getenv("PLIMSOLL_FAIL_KERNEL");
  if (result != 0 || wish == nullptr || !ends_in(to, "/checkpoint.plimsoll")) return result;
  static int left = std::atoi(std::strchr(wish, ':') != nullptr ? std::strchr(wish, ':') + 1 : "1");
  if (--left == 0) fail_a_kernel(std::strncmp(wish, "stray", 5) == 0 ? "stray_kernel" : "trap_kernel");
  return result;
}
