// Shared by the fuzz targets. A target treats one input as an untrusted file and must return: no crash, no sanitizer
// report, no endless loop, no exception, no internal error.
//
// Every target is built twice: with libFuzzer (cmake --preset fuzz), and with replay.cpp as a program that runs given
// files once, which works with any compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace plimsoll::engine::fuzz {

using Input = std::span<const uint8_t>;

// The input as a file in memory. It is removed with the object.
class InputFile {
 public:
  explicit InputFile(Input input);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }  // /proc/self/fd/N

 private:
  int fd_ = -1;
  std::string path_;
};

// Returns this process's folder in memory, which is made once and removed at the end. It is used as the cache
// ($PLIMSOLL_CACHE) and for temporary files ($TMPDIR). No file in it may grow beyond 64 MiB.
const std::string& scratch_folder();
void empty_scratch_folder();

// Stops with a report, for results that a bad file must never have although no sanitizer detects them.
[[noreturn]] void found(const std::string& what);

// Bad input must never cause an internal error, and must never use up all memory.
template <typename T>
void check_error(const Result<T>& result) {
  if (result) return;
  const ErrorCode code = result.error().code;
  if (code == ErrorCode::kInternal || code == ErrorCode::kOutOfMemory) found(to_text(result.error()));
}

// Returns the input with every CRC32 in its zip directory corrected, so that mutations get past the checksums.
std::string with_zip_checksums(Input input);

}  // namespace plimsoll::engine::fuzz
