// Reads graph text. Each line is one statement; an error names the line, what was expected and what was found.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "graph/graph.h"
#include "graph/text.h"

namespace plimsoll::engine {
namespace {

constexpr int kDeepestBody = 4;

// A cursor over one line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {}

  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool take(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  Status expect(std::string_view token) {
    if (take(token)) return {};
    return wrong(fmt::format("'{}'", token));
  }
  tl::unexpected<Error> wrong(std::string_view expected) {
    skip_space();
    const std::string_view rest = text_.substr(at_, 40);
    return fail(ErrorCode::kBadPlan, fmt::format("graph text, line {}: expected {}, got {}", number_, expected,
                                                 rest.empty() ? "the end of the line" : fmt::format("'{}'", rest)));
  }
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(ErrorCode::kBadPlan, fmt::format("graph text, line {}: {}", number_, what));
  }

  Result<std::string> word(std::string_view what) {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && is_plain_name_char(text_[at_])) ++at_;
    if (at_ == begin) return wrong(what);
    return std::string(text_.substr(begin, at_ - begin));
  }

  Result<std::string> text() {
    PLIMSOLL_TRY(expect("\""));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\') {
        PLIMSOLL_ASSIGN(c, escaped());
      }
      out += c;
    }
    if (at_ == text_.size()) return wrong("'\"'");
    ++at_;
    return out;
  }

  Result<int64_t> integer() {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return wrong("an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<std::vector<int64_t>> list() {
    PLIMSOLL_TRY(expect("["));
    std::vector<int64_t> values;
    if (take("]")) return values;
    do {
      PLIMSOLL_ASSIGN(const int64_t value, integer());
      values.push_back(value);
    } while (take(","));
    PLIMSOLL_TRY(expect("]"));
    return values;
  }

  Result<Attr> attr() {
    skip_space();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '"') return text().map([](std::string v) { return Attr(std::move(v)); });
    if (c == '[') return list().map([](std::vector<int64_t> v) { return Attr(std::move(v)); });
    if (take("true")) return Attr(true);
    if (take("false")) return Attr(false);
    return number();
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  Result<char> escaped() {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    if (c == 'x' && at_ + 2 <= text_.size()) {
      unsigned code = 0;
      const char* begin = text_.data() + at_;
      if (const auto [end, error] = std::from_chars(begin, begin + 2, code, 16);
          error == std::errc() && end == begin + 2) {
        at_ += 2;
        return static_cast<char>(code);
      }
    }
    return bad("invalid escape sequence in a quoted text");
  }

  Result<Attr> number() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ' ') ++at_;
    const std::string_view token = text_.substr(begin, at_ - begin);
    const char* end = token.data() + token.size();
    if (token.find_first_of(".enf") == std::string_view::npos) {
      int64_t value = 0;
      if (const auto r = std::from_chars(token.data(), end, value); r.ec == std::errc() && r.ptr == end)
        return Attr(value);
    } else {
      double value = 0;
      if (const auto r = std::from_chars(token.data(), end, value); r.ec == std::errc() && r.ptr == end)
        return Attr(value);
    }
    at_ = begin;
    return wrong("an attribute's value");
  }

  std::string_view text_;
  size_t at_ = 0;
  int number_;
};

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // Returns the next line that is not blank, or nullopt at the end.
  std::optional<Line> next() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) return Line(line, number_);
    }
    return std::nullopt;
  }
  int number() const { return number_; }

 private:
  std::string_view rest_;
  int number_ = 0;
};

class GraphParser {
 public:
  GraphParser(Lines& lines, int depth) : lines_(lines), depth_(depth) {}

  Result<Graph> parse() {
    auto first = lines_.next();
    if (!first) return fail(ErrorCode::kBadPlan, "graph text is empty: expected 'graph \"NAME\"'");
    PLIMSOLL_TRY(first->expect("graph"));
    PLIMSOLL_ASSIGN(graph_.name, first->text());
    while (auto line = lines_.next()) {
      if (line->take("}")) {
        if (depth_ == 0 || !line->at_end()) return line->wrong("a statement");
        return std::move(graph_);
      }
      PLIMSOLL_TRY(statement(*line));
      if (!line->at_end()) return line->wrong("the end of the line");
    }
    if (depth_ > 0)
      return fail(ErrorCode::kBadPlan,
                  fmt::format("graph text, line {}: expected '}}' after the body of a fused node", lines_.number()));
    return std::move(graph_);
  }

 private:
  Status statement(Line& line) {
    if (line.take("{")) return body(line);
    if (line.take("output ")) {
      PLIMSOLL_ASSIGN(const ValueId id, known(line));
      graph_.outputs.push_back(id);
      return {};
    }
    if (line.take("update ")) {
      PLIMSOLL_ASSIGN(const ValueId persistent, known(line));
      PLIMSOLL_TRY(line.expect("<-"));
      PLIMSOLL_ASSIGN(const ValueId value, known(line));
      graph_.updates.push_back({persistent, value});
      return {};
    }
    std::vector<std::string> names;
    do {
      PLIMSOLL_ASSIGN(std::string name, value_name(line));
      names.push_back(std::move(name));
    } while (line.take(","));
    PLIMSOLL_TRY(line.expect("="));
    PLIMSOLL_ASSIGN(std::string op, line.word("an op"));
    return op == "input" ? input(line, names) : node(line, std::move(op), names);
  }

  Status body(Line& line) {
    if (graph_.nodes.empty() || graph_.nodes.back().op != "fused" || graph_.nodes.back().body)
      return line.bad("a body must follow a fused node");
    if (depth_ == kDeepestBody) return line.bad("bodies are nested too deeply");
    PLIMSOLL_ASSIGN(Graph inner, GraphParser(lines_, depth_ + 1).parse());
    graph_.nodes.back().body = std::make_shared<const Graph>(std::move(inner));
    return {};
  }

  Status input(Line& line, const std::vector<std::string>& names) {
    if (names.size() != 1) return line.bad("an input defines one value");
    Value value;
    value.name = names.front();
    PLIMSOLL_TRY(type_of(line, value));
    value.persistent = line.take("persistent");
    if (line.take("layer=")) {
      PLIMSOLL_ASSIGN(value.layer, line.text());
    }
    PLIMSOLL_ASSIGN(const ValueId id, define(line, std::move(value)));
    graph_.inputs.push_back(id);
    return {};
  }

  Status node(Line& line, std::string op, const std::vector<std::string>& names) {
    Node node;
    node.op = std::move(op);
    PLIMSOLL_TRY(line.expect("("));
    if (!line.take(")")) {
      do {
        PLIMSOLL_ASSIGN(const ValueId id, known(line));
        node.inputs.push_back(id);
      } while (line.take(","));
      PLIMSOLL_TRY(line.expect(")"));
    }
    PLIMSOLL_TRY(attributes(line, node.attrs));
    PLIMSOLL_TRY(line.expect(":"));
    std::vector<Value> values;
    std::vector<bool> own_layer;
    for (size_t i = 0; i < names.size(); ++i) {
      if (i > 0) PLIMSOLL_TRY(line.expect(","));
      Value value;
      value.name = names[i];
      value.producer = static_cast<NodeId>(graph_.nodes.size());
      PLIMSOLL_TRY(type_of(line, value));
      own_layer.push_back(line.take("value_layer="));
      if (own_layer.back()) {
        PLIMSOLL_ASSIGN(value.layer, line.text());
      }
      values.push_back(std::move(value));
    }
    if (line.take("layer=")) {
      PLIMSOLL_ASSIGN(node.layer, line.text());
    }
    if (line.take("stage=")) {
      PLIMSOLL_ASSIGN(node.stage, one_of<Stage>(line, "stage", stage_from_name));
    }
    if (line.take("queue=")) {
      PLIMSOLL_ASSIGN(node.queue, one_of<Queue>(line, "queue", queue_from_name));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!own_layer[i]) values[i].layer = node.layer;
      PLIMSOLL_ASSIGN(const ValueId id, define(line, std::move(values[i])));
      node.outputs.push_back(id);
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  static Status attributes(Line& line, Attrs& attrs) {
    if (!line.take("{")) return {};
    do {
      PLIMSOLL_ASSIGN(const std::string key, line.word("an attribute's name"));
      if (attrs.has(key)) return line.bad(fmt::format("attribute '{}' is given twice", key));
      PLIMSOLL_TRY(line.expect("="));
      PLIMSOLL_ASSIGN(Attr value, line.attr());
      attrs.set(key, std::move(value));
    } while (line.take(","));
    return line.expect("}");
  }

  // Reads a word that `from_name` accepts.
  template <typename Enum>
  static Result<Enum> one_of(Line& line, std::string_view what, std::optional<Enum> (*from_name)(std::string_view)) {
    PLIMSOLL_ASSIGN(const std::string name, line.word(fmt::format("a {}", what)));
    const auto known = from_name(name);
    if (!known) return line.bad(fmt::format("'{}' is not a {}", name, what));
    return *known;
  }

  // Reads "f32[2,3] activations", and the layout and the memory if they are given.
  static Status type_of(Line& line, Value& value) {
    PLIMSOLL_ASSIGN(const std::string dtype, line.word("a dtype"));
    const auto known_dtype = dtype_from_name(dtype);
    if (!known_dtype) return line.bad(fmt::format("'{}' is not a dtype", dtype));
    value.type.dtype = *known_dtype;
    PLIMSOLL_ASSIGN(std::vector<int64_t> dims, line.list());
    auto shape = checked_shape(std::move(dims), "shape");
    if (!shape) return line.bad(shape.error().what);
    value.type.shape = std::move(*shape);
    PLIMSOLL_ASSIGN(value.category, one_of<Category>(line, "category", category_from_name));
    if (line.take("layout=")) {
      PLIMSOLL_ASSIGN(value.layout, line.text());
      PLIMSOLL_TRY(line.expect("layout_bytes="));
      PLIMSOLL_ASSIGN(value.layout_bytes, line.integer());
    }
    if (line.take("space=")) {
      PLIMSOLL_ASSIGN(value.space, one_of<Space>(line, "space", space_from_text));
    }
    return {};
  }

  static Result<std::string> value_name(Line& line) {
    PLIMSOLL_TRY(line.expect("%"));
    return line.next_is('"') ? line.text() : line.word("a value's name");
  }

  Result<ValueId> known(Line& line) {
    PLIMSOLL_ASSIGN(const std::string name, value_name(line));
    const auto found = ids_.find(name);
    if (found == ids_.end()) return line.bad(fmt::format("%{} is read before it is written", name));
    return found->second;
  }

  Result<ValueId> define(Line& line, Value value) {
    const auto id = static_cast<ValueId>(graph_.values.size());
    if (!ids_.emplace(value.name, id).second) return line.bad(fmt::format("%{} is defined twice", value.name));
    graph_.values.push_back(std::move(value));
    return id;
  }

  Lines& lines_;
  int depth_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> ids_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text) {
  Lines lines(text);
  return GraphParser(lines, 0).parse();
}

}  // namespace plimsoll::engine
