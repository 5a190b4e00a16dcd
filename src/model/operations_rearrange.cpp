// keras.ops.rearrange: einops patterns such as "b (h a) w c -> b h (w a) c".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

// A side of an einops pattern: the names of each dimension. "(h a) c" has two dimensions.
using Pattern = std::vector<std::vector<std::string>>;

std::optional<Pattern> read_side(std::string_view text) {
  Pattern side;
  bool group = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const auto is_name = [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_'; };
    if (c == '(' || c == ')') {
      if ((c == '(') == group) return std::nullopt;
      group = c == '(';
      if (group) side.emplace_back();
      ++at;
    } else if (is_name(c)) {
      const size_t begin = at;
      while (at < text.size() && is_name(text[at])) ++at;
      if (!group) side.emplace_back();
      side.back().emplace_back(text.substr(begin, at - begin));
    } else if (c == ' ') {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  return group ? std::nullopt : std::optional(side);
}

// The sizes of all names; empty after an error.
std::map<std::string, int64_t> sizes_of(OpWriter& w, const Pattern& from, const std::vector<int64_t>& dims,
                                        std::map<std::string, int64_t> sizes) {
  for (size_t d = 1; d < from.size(); ++d) {
    int64_t known = 1;
    const std::string* open = nullptr;
    for (const std::string& name : from[d]) {
      const auto found = sizes.find(name);
      if (found == sizes.end() && open) w.fail(fmt::format("'{}' and '{}' both have no size", *open, name));
      if (found == sizes.end())
        open = &name;
      else
        known *= std::clamp<int64_t>(found->second, 1, dims[d] + 1);
      if (known > dims[d] || w.failed()) break;
    }
    if (open && !w.failed()) sizes[*open] = dims[d] / std::max<int64_t>(known, 1), known *= sizes[*open];
    if (known != dims[d]) w.fail(fmt::format("the parts of dimension {} do not have {} elements", d, dims[d]));
    if (w.failed()) return {};
  }
  return sizes;
}

// einops: dimensions are split, put into another order, and joined.
OpBody rearrange(OpReader& r) {
  const OpArgument x = r.operand("tensor", 0);
  const Json* value = r.arguments.value("pattern", 1);
  const std::string text = value && value->is_string() ? value->get<std::string>() : "";
  const size_t arrow = text.find("->");
  const auto from = read_side(text.substr(0, arrow)),
             to = read_side(arrow == std::string::npos ? "(" : text.substr(arrow + 2));
  std::map<std::string, int64_t> given;
  std::vector<std::string> left, right;
  if (from && to) {
    for (const auto& group : *from) left.insert(left.end(), group.begin(), group.end());
    for (const auto& group : *to) right.insert(right.end(), group.begin(), group.end());
  }
  for (const std::string& name : left)
    if (const Json* size = r.arguments.value(name, 1 << 20)) given[name] = as_integer(*size).value_or(0);
  auto sorted_left = left, sorted_right = right;
  std::sort(sorted_left.begin(), sorted_left.end());
  std::sort(sorted_right.begin(), sorted_right.end());
  if (left.empty() || sorted_left != sorted_right ||
      std::adjacent_find(sorted_left.begin(), sorted_left.end()) != sorted_left.end()) {
    r.refuse(fmt::format("pattern \"{}\": both sides must list the same names once", text));
    return nullptr;
  }
  const bool batch_stays = (*from)[0].size() == 1 && (*to)[0] == (*from)[0];
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const std::vector<int64_t> dims = w.dims(in);
    if (!batch_stays) w.refuse(fmt::format("pattern \"{}\": the first dimension must stay the batch", text));
    if (dims.size() != from->size()) w.fail(fmt::format("pattern \"{}\" of {} dimensions", text, dims.size()));
    if (w.failed()) return {in};
    auto sizes = sizes_of(w, *from, dims, given);
    if (w.failed()) return {in};
    sizes[left[0]] = dims[0];
    std::vector<int64_t> split, perm, joined;
    for (const std::string& name : left) split.push_back(sizes[name]);
    for (const std::string& name : right) perm.push_back(std::find(left.begin(), left.end(), name) - left.begin());
    for (const auto& group : *to) {
      joined.push_back(1);
      for (const std::string& name : group) joined.back() *= sizes[name];
    }
    return {w.reshape(w.transpose(w.reshape(in, split), perm), joined)};
  };
}

constexpr std::array kOperations = {
    OpClass{"Rearrange", rearrange},
};

}  // namespace

std::span<const OpClass> rearranging_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
