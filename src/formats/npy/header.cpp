#include "formats/npy/header.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace plimsoll::engine {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NpyHeader> parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    PLIMSOLL_TRY(expect('{'));
    while (!accept('}')) {
      PLIMSOLL_ASSIGN(const std::string key, quoted());
      PLIMSOLL_TRY(expect(':'));
      if (key == "descr" && !has_descr) {
        PLIMSOLL_ASSIGN(header.descr, descr());
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        PLIMSOLL_ASSIGN(header.fortran_order, boolean());
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        PLIMSOLL_ASSIGN(header.shape, tuple());
        has_shape = true;
      } else {
        return expected("one each of the keys descr, fortran_order and shape");
      }
      if (!accept(',') && peek() != '}') return expected("',' or '}'");
    }
    if (!has_descr || !has_order || !has_shape) return expected("the keys descr, fortran_order and shape");
    if (peek() != '\0') return expected("the end of the header");
    return header;
  }

 private:
  tl::unexpected<Error> expected(std::string_view what) const {
    return fail(ErrorCode::kBadDataFile, fmt::format("expected {} at character {} of the header", what, at_));
  }
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || c == '\0') return false;
    ++at_;
    return true;
  }
  Status expect(char c) {
    if (accept(c)) return {};
    return expected(fmt::format("'{}'", c));
  }
  Result<std::string> quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return expected("a quoted word");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return expected("a closing quote");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  // A structured type is a list of tuples. It is rejected later, so only its end must be found here.
  Result<std::string> descr() {
    if (peek() != '[') return quoted();
    const size_t begin = at_;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      if (text_[at_] == '[') ++depth;
      if (text_[at_] == ']' && --depth == 0) return std::string(text_.substr(begin, ++at_ - begin));
    }
    return expected("']'");
  }
  Result<bool> boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    return expected("True or False");
  }
  Result<std::vector<int64_t>> tuple() {
    PLIMSOLL_TRY(expect('('));
    std::vector<int64_t> dims;
    while (!accept(')')) {
      peek();
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc{} || value < 0) return expected("a dimension");
      at_ = static_cast<size_t>(end - text_.data());
      accept('L');  // Python 2 wrote long integers with an L
      dims.push_back(value);
      if (!accept(',') && peek() != ')') return expected("',' or ')'");
    }
    return dims;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace plimsoll::engine
