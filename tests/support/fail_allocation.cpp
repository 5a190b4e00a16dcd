// An operator new that fails once, on request. LD_PRELOAD loads it into a program.
//
//   PLIMSOLL_FAIL_ALLOCATION=N     the N-th allocation (the first is 1) throws std::bad_alloc
//   PLIMSOLL_ALLOCATION_LOG=FILE   writes one line per allocation: a number that identifies its call path
//   PLIMSOLL_LEAK=1                leaks one allocation, to test whether leaks are detected
//
// Only allocations of the program's own code count, directly or through the C++ library and libfmt. Allocations of
// other libraries always succeed, also those that oneDNN makes through a function template of the C++ library of which
// the program has a copy: the linker lets both use one of them, and it may be the program's. They count, but never
// fail.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool has(const void* address) const {
    const auto a = reinterpret_cast<uintptr_t>(address);
    return a >= begin && a < end;
  }
};

constexpr int kMostRanges = 4, kDepth = 24;
Range program, onednn;
Range passed_through[kMostRanges];  // this library, the C++ library, libfmt
int passed_count = 0;
std::atomic<bool> ready{false};
std::atomic<int64_t> count{0};
int64_t target = 0;
int log_file = -1;
thread_local bool inside = false;  // backtrace() may allocate

Range range_of(const dl_phdr_info& info) {
  Range range{UINTPTR_MAX, 0};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t begin = info.dlpi_addr + info.dlpi_phdr[i].p_vaddr;
    range.begin = begin < range.begin ? begin : range.begin;
    range.end = begin + info.dlpi_phdr[i].p_memsz > range.end ? begin + info.dlpi_phdr[i].p_memsz : range.end;
  }
  return range;
}

int note_object(dl_phdr_info* info, size_t, void* first) {
  bool& is_first = *static_cast<bool*>(first);
  if (is_first) program = range_of(*info);
  is_first = false;
  if (std::strstr(info->dlpi_name, "libdnnl") != nullptr) onednn = range_of(*info);
  for (const char* name : {"libfail_allocation", "libstdc++", "libfmt"})
    if (std::strstr(info->dlpi_name, name) != nullptr && passed_count < kMostRanges)
      passed_through[passed_count++] = range_of(*info);
  return 0;
}

[[gnu::constructor]] void start() {
  bool first = true;
  dl_iterate_phdr(note_object, &first);
  if (const char* text = std::getenv("PLIMSOLL_FAIL_ALLOCATION")) target = std::atoll(text);
  if (const char* path = std::getenv("PLIMSOLL_ALLOCATION_LOG"))
    log_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  void* frames[2];
  backtrace(frames, 2);  // loads its libraries now
}

bool passes_through(const void* address) {
  for (int i = 0; i < passed_count; ++i)
    if (passed_through[i].has(address)) return true;
  return false;
}

// Returns whether oneDNN called the function of the program that allocates.
bool is_of_onednn(void* const* frames, int depth) {
  bool in_program = false;
  for (int i = 0; i < depth; ++i) {
    if (onednn.has(frames[i])) return in_program;
    if (in_program && !passes_through(frames[i])) return false;  // the program's own caller
    in_program = in_program || program.has(frames[i]);
  }
  return false;
}

void log_path(void* const* frames, int depth) {
  uint64_t hash = 1469598103934665603;
  if (is_of_onednn(frames, depth)) depth = 0;  // one path for all of them
  for (int i = 0; i < depth; ++i) {
    if (!program.has(frames[i])) continue;
    hash = (hash ^ (reinterpret_cast<uintptr_t>(frames[i]) - program.begin)) * 1099511628211;
  }
  char line[32];
  const int length = std::snprintf(line, sizeof line, "%016llx\n", static_cast<unsigned long long>(hash));
  if (write(log_file, line, static_cast<size_t>(length)) != length) _exit(99);
}

// Returns whether this allocation is the one to fail.
bool fails(const void* caller) {
  if (!ready || inside || (target == 0 && log_file < 0)) return false;
  if (!program.has(caller) && !passes_through(caller)) return false;
  inside = true;
  void* frames[kDepth];
  int depth = 0;
  bool own = program.has(caller);
  if (!own || log_file >= 0) {
    depth = backtrace(frames, kDepth);
    for (int i = 0; i < depth && !own; ++i) {
      if (passes_through(frames[i])) continue;
      own = program.has(frames[i]);
      break;
    }
  }
  if (own && log_file >= 0) log_path(frames, depth);
  bool chosen = own && ++count == target;
  if (chosen) chosen = !is_of_onednn(frames, backtrace(frames, kDepth));
  inside = false;
  return chosen;
}

using Main = int (*)(int, char**, char**);
Main main_of_program = nullptr;

// Leaks many times, because the last address may stay on the stack or in a register.
[[gnu::noinline]] void lose_some_memory() {
  [[maybe_unused]] void* volatile lost = nullptr;  // keeps the compiler from removing the allocations
  for (int i = 0; i < 100; ++i) lost = std::malloc(1000);
  lost = nullptr;
}

// Counting starts in main(): no code can catch an exception of objects that are created or destroyed outside main().
int counted_main(int argc, char** argv, char** environment) {
  if (std::getenv("PLIMSOLL_LEAK") != nullptr) lose_some_memory();
  ready = true;
  const int code = main_of_program(argc, argv, environment);
  ready = false;
  return code;
}

void* allocate(size_t bytes, size_t alignment) {
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* give(size_t bytes, size_t alignment, const void* caller) {
  void* memory = fails(caller) ? nullptr : allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" int __libc_start_main(Main program_main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {  // NOLINT
  main_of_program = program_main;
  const auto start_main = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start_main(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

#define CALLER __builtin_return_address(0)
[[gnu::noinline]] void* operator new(size_t n) {
  return give(n, 1, CALLER);
}
[[gnu::noinline]] void* operator new[](size_t n) {
  return give(n, 1, CALLER);
}
[[gnu::noinline]] void* operator new(size_t n, std::align_val_t a) {
  return give(n, static_cast<size_t>(a), CALLER);
}
[[gnu::noinline]] void* operator new[](size_t n, std::align_val_t a) {
  return give(n, static_cast<size_t>(a), CALLER);
}
[[gnu::noinline]] void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return fails(CALLER) ? nullptr : allocate(n, 1);
}
[[gnu::noinline]] void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return fails(CALLER) ? nullptr : allocate(n, 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
