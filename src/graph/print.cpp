#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/graph.h"
#include "graph/text.h"

namespace plimsoll::engine {

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_plain_name_char);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

namespace {

std::string reference(const Graph& graph, ValueId id) {
  const std::string& name = graph.value(id).name;
  return '%' + (is_plain_name(name) ? name : quoted(name));
}

// Returns the shortest text that reads back as the same number and does not look like an integer.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

struct AttrText {
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return real_text(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ",")); }
};

std::string attrs_text(const Attrs& attrs) {
  std::string text;
  for (const auto& [key, value] : attrs.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, std::visit(AttrText{}, value));
  return text.empty() ? "" : " {" + text + "}";
}

std::string layout_text(const Value& value) {
  const std::string space = value.space == Space::kDevice ? "" : " space=" + to_text(value.space);
  if (value.layout.empty()) return space;
  return fmt::format(" layout={} layout_bytes={}{}", quoted(value.layout), value.layout_bytes, space);
}

std::string stage_and_queue_text(const Node& node) {
  std::string text;
  if (node.stage != Stage::kForward) text += fmt::format(" stage={}", name_of(node.stage));
  if (node.queue != Queue::kCompute) text += fmt::format(" queue={}", name_of(node.queue));
  return text;
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string print(const std::string& indent) {
    indent_ = indent;
    out_ = fmt::format("{}graph {}\n", indent, quoted(graph_.name));
    for (const Node& node : graph_.nodes) {
      inputs_until(inputs_needed_by(node));
      print_node(node);
    }
    inputs_until(graph_.inputs.size());
    for (ValueId id : graph_.outputs) out_ += fmt::format("{}  output {}\n", indent, reference(graph_, id));
    for (const Update& u : graph_.updates)
      out_ += fmt::format("{}  update {} <- {}\n", indent, reference(graph_, u.persistent), reference(graph_, u.value));
    return out_;
  }

 private:
  // Inputs are printed in order of creation, so that parsing gives values the same ids, but always before the node that
  // reads them.
  size_t inputs_needed_by(const Node& node) const {
    size_t count = printed_;
    for (size_t i = printed_; i < graph_.inputs.size(); ++i) {
      const ValueId id = graph_.inputs[i];
      const bool older = !node.outputs.empty() && id < node.outputs.front();
      const bool read = std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
      if (older || read) count = i + 1;
    }
    return count;
  }

  void inputs_until(size_t count) {
    for (; printed_ < count; ++printed_) {
      const Value& v = graph_.value(graph_.inputs[printed_]);
      out_ += fmt::format("{}  {} = input {} {}{}{}{}\n", indent_, reference(graph_, graph_.inputs[printed_]),
                          to_text(v.type), name_of(v.category), layout_text(v), v.persistent ? " persistent" : "",
                          v.layer.empty() ? "" : " layer=" + quoted(v.layer));
    }
  }

  void print_node(const Node& node) {
    std::string left, right;
    for (ValueId id : node.outputs) {
      const Value& v = graph_.value(id);
      left += (left.empty() ? "" : ", ") + reference(graph_, id);
      right += fmt::format("{}{} {}{}{}", right.empty() ? "" : ", ", to_text(v.type), name_of(v.category),
                           layout_text(v), v.layer == node.layer ? "" : " value_layer=" + quoted(v.layer));
    }
    std::string inputs;
    for (ValueId id : node.inputs) inputs += (inputs.empty() ? "" : ", ") + reference(graph_, id);
    out_ += fmt::format("{}  {} = {}({}){} : {}{}{}\n", indent_, left, node.op, inputs, attrs_text(node.attrs), right,
                        node.layer.empty() ? "" : " layer=" + quoted(node.layer), stage_and_queue_text(node));
    if (node.body) out_ += fmt::format("{0}  {{\n{1}{0}  }}\n", indent_, Printer(*node.body).print(indent_ + "    "));
  }

  const Graph& graph_;
  std::string indent_, out_;
  size_t printed_ = 0;
};

}  // namespace

std::string print(const Graph& graph) {
  return Printer(graph).print("");
}

}  // namespace plimsoll::engine
