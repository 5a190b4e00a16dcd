#include "device/kernel_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace plimsoll::engine {
namespace {

std::string text_of(const Attr& attr) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, AttrList>)
          return fmt::format("[{}]", fmt::join(value, ","));
        else
          return fmt::format("{}", value);
      },
      attr);
}

void add_attributes(const Node& node, std::string& key) {
  for (const auto& [name, attr] : node.attrs.items()) key += fmt::format(" {}={}", name, text_of(attr));
}

// Values are named by the order in which the body mentions them.
void add_body(const Graph& body, std::string& key) {
  std::map<ValueId, size_t> numbers;
  const auto number = [&](ValueId id) {
    const auto [at, added] = numbers.try_emplace(id, numbers.size());
    return fmt::format("%{}{}", at->second, added ? ":" + to_text(body.type(id)) : "");
  };
  key += fmt::format(" {{{}", body.name);
  for (const ValueId id : body.inputs) key += " " + number(id);
  for (const Node& node : body.nodes) {
    key += "; ";
    for (const ValueId id : node.outputs) key += number(id) + " ";
    key += "= " + node.op;
    for (const ValueId id : node.inputs) key += " " + number(id);
    add_attributes(node, key);
    if (node.body) add_body(*node.body, key);
  }
  key += "; out";
  for (const ValueId id : body.outputs) key += " " + number(id);
  key += "}";
}

}  // namespace

std::string kernel_key(const Graph& graph, const Node& node, const KernelOffer& offer, bool tf32) {
  std::string key = fmt::format("{}|{}|{}{}|", node.op, offer.kernel, offer.workspace, tf32 ? "|tf32" : "");
  const auto add = [&](const std::vector<ValueId>& ids, const std::vector<Layout>& layouts) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const Value& value = graph.value(ids[i]);
      const std::string& layout = i < layouts.size() ? layouts[i].name : value.layout;
      key += fmt::format(" {}{}{}", to_text(value.type), layout.empty() ? "" : "/", layout);
    }
  };
  add(node.inputs, offer.inputs);
  key += " >";
  add(node.outputs, offer.outputs);
  add_attributes(node, key);
  if (node.body) add_body(*node.body, key);
  // A key is one line of a file.
  std::replace_if(
      key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return key;
}

std::string_view family_of(std::string_view key) {
  const size_t kernel = key.find('|');
  return key.substr(0, kernel == std::string_view::npos ? kernel : key.find('|', kernel + 1));
}

}  // namespace plimsoll::engine
