// The steps from a text to its tokens, as Keras's TextVectorization takes them with TensorFlow's string operations. All
// of them work on bytes, in the memory of the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

enum class TextSplit : uint8_t { kWhole, kWhitespace, kCharacter };

// tf.strings.lower: A to Z alone.
void lower_ascii(std::string& text);
// Removes all punctuation of ASCII.
void strip_punctuation(std::string& text);

// Gives the tokens of a text, one after the other. Bytes that are no UTF-8 become U+FFFD, as in ICU, if the text is
// split into characters.
class Tokens {
 public:
  Tokens(std::string_view text, TextSplit split) : text_(text), split_(split) {}

  // Sets `token`; returns false at the end.
  bool next(std::string_view& token);

 private:
  std::string_view character();

  std::string_view text_;
  TextSplit split_;
  bool done_ = false;
};

// Calls use(token) for every sequence of tokens with one of these widths, joined by blanks: all of the first width,
// then all of the second. `joined` and `window` are memory that is used again. `use` returns false to stop.
template <typename Use>
void for_ngrams(std::string_view text, TextSplit split, const std::vector<int64_t>& widths, std::string& joined,
                std::vector<std::string_view>& window, Use use) {
  for (const int64_t width : widths) {
    window.clear();
    Tokens tokens(text, split);
    for (std::string_view token; tokens.next(token);) {
      if (static_cast<int64_t>(window.size()) == width) window.erase(window.begin());
      window.push_back(token);
      if (static_cast<int64_t>(window.size()) < width) continue;
      std::string_view found = token;
      if (width > 1) {
        joined.clear();
        for (size_t i = 0; i < window.size(); ++i) {
          if (i > 0) joined += ' ';
          joined += window[i];
        }
        found = joined;
      }
      if (!use(found)) return;
    }
  }
}

}  // namespace plimsoll::engine
