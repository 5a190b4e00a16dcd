#include "model/text/tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace plimsoll::engine {
namespace {

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace

void lower_ascii(std::string& text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

void strip_punctuation(std::string& text) {
  text.erase(std::remove_if(text.begin(), text.end(), is_punctuation), text.end());
}

std::string_view Tokens::character() {
  bool valid = false;
  const size_t length = utf8_character(text_, valid);
  const std::string_view found = text_.substr(0, length);
  text_.remove_prefix(length);
  return valid ? found : kReplacementCharacter;
}

bool Tokens::next(std::string_view& token) {
  if (split_ == TextSplit::kWhole) {
    token = text_;
    return !std::exchange(done_, true);
  }
  if (split_ == TextSplit::kCharacter) {
    if (text_.empty()) return false;
    token = character();
    return true;
  }
  const auto* const begin = std::find_if_not(text_.begin(), text_.end(), is_blank);
  const auto* const end = std::find_if(begin, text_.end(), is_blank);
  token = {begin, static_cast<size_t>(end - begin)};
  text_.remove_prefix(static_cast<size_t>(end - text_.begin()));
  return !token.empty();
}

}  // namespace plimsoll::engine
