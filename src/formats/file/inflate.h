// Inflates deflate streams, by ISA-L where it is installed and by zlib otherwise. ISA-L takes half the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace plimsoll::engine {

// What surrounds the deflated data. The checksums of kZlib and kGzip are verified.
enum class DeflateWrapper : uint8_t { kNone, kZlib, kGzip };

class Inflater {
 public:
  // What it allocates at most.
  static constexpr Bytes kState = 96 * kKiB;

  // Returns null without memory for it.
  static std::unique_ptr<Inflater> create(DeflateWrapper wrapper);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  enum class State : uint8_t { kMore, kEnd, kDamaged };
  struct Step {
    size_t used = 0, made = 0;  // bytes of the input and the output
    State state = State::kMore;
  };
  // Inflates from `in` to `out` until one of them is used up or the stream ends. Output may remain that is made without
  // more input, so the stream needs more input only after a step that did not fill `out`.
  Step step(std::span<const std::byte> in, std::span<std::byte> out);
  // Begins with another stream.
  void reset();

 private:
  struct Stream;
  Inflater(std::unique_ptr<Stream> stream, DeflateWrapper wrapper);
  std::unique_ptr<Stream> stream_;
  DeflateWrapper wrapper_;
};

// The checksum of PNG chunks and gzip members. Begins with 0.
uint32_t crc32_of(uint32_t before, std::span<const std::byte> data);

}  // namespace plimsoll::engine
