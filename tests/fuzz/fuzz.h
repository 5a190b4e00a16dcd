// What the fuzz targets share. A target takes one input as a file from a stranger and must come back: no crash, no
// report of a sanitizer, no endless loop, no exception, no internal error.
//
// Every target is built twice: with libFuzzer (cmake --preset fuzz), and with replay.cpp as a program that runs given
// files once, for any compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace plimsoll::engine::fuzz {

using Input = std::span<const uint8_t>;

// The input as a file in memory; gone with this object.
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

// A folder of this process in memory, made once and removed at the end. It is the cache ($PLIMSOLL_CACHE) and the place
// of temporary files ($TMPDIR), and no file in it may grow beyond 64 MiB.
const std::string& scratch_folder();
void empty_scratch_folder();

// Stops with a report. For what must never come out of a bad file though no sanitizer sees it.
[[noreturn]] void found(const std::string& what);

// Bad input is never an error of the program itself, and never takes all memory.
template <typename T>
void check_error(const Result<T>& result) {
  if (result) return;
  const ErrorCode code = result.error().code;
  if (code == ErrorCode::kInternal || code == ErrorCode::kOutOfMemory) found(to_text(result.error()));
}

// The input with every CRC32 in its zip directory made right, so that mutations reach what lies behind the check.
std::string with_zip_checksums(Input input);

}  // namespace plimsoll::engine::fuzz
