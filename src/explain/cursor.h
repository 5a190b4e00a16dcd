// Reads words and numbers from text that may be wrapped anywhere: blanks and line breaks between and inside words do
// not count. Letters are compared without their case.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine::explain {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Moves behind `words` if they come next.
  bool eat(std::string_view words);
  // Moves behind the next occurrence of `words` that begins within `within` characters.
  bool find(std::string_view words, size_t within = 4096);

  std::optional<int64_t> whole();
  // "34.10MiB", "8.41G", "67 MB", "53312244kB", "9029127168 bytes". All units are powers of 1024: so TensorFlow, XLA,
  // PyTorch, numpy and the kernel print them. A number without a unit is in bytes.
  std::optional<Bytes> size();
  // "[2048,436631]" or "(102400, 64, 64, 3)". Fails if the product overflows.
  std::optional<std::vector<int64_t>> dims();
  // The characters up to a blank, a line break or one of `ends`.
  std::string word(std::string_view ends = "");

  std::string_view rest() const { return text_.substr(at_); }
  size_t at() const { return at_; }

 private:
  void skip_blanks();
  std::optional<size_t> match(size_t from, std::string_view words) const;
  std::string_view text_;
  size_t at_ = 0;
};

int64_t elements_of(const std::vector<int64_t>& dims);  // the product; dims() has checked it

}  // namespace plimsoll::engine::explain
