// reorder: converts a value from one layout to another with oneDNN.
#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/onednn/layout.h"
#include "backends/cpu/onednn/primitive.h"
#include "backends/cpu/parallel.h"

namespace plimsoll::engine::cpu {

namespace {

// A row-major value has an empty layout name, so its dimensions in oneDNN's order are taken from the other value.
Result<std::pair<dnnl::memory::desc, dnnl::memory::desc>> both_descs(const std::string& from, const std::string& to) {
  PLIMSOLL_ASSIGN(const NamedDesc named, desc_from_name(from.empty() ? to : from));
  const auto plain = plain_desc(named.kind, named.desc.dims());
  if (from.empty()) return std::pair(plain, named.desc);
  if (to.empty()) return std::pair(named.desc, plain);
  PLIMSOLL_ASSIGN(const NamedDesc target, desc_from_name(to));
  return std::pair(named.desc, target.desc);
}

Recipe plain_copy(const Problem& p) {
  const Bytes bytes = p.in(0).bytes();
  return own_recipe(
      "copy", 0, p.machine.seconds(0, 1, p.traffic()), [bytes, threads = p.machine.threads](const BoundNode& node) {
        return [=, from = input<const char>(node, 0), to = output<char>(node, 0)] {
          if (from == to) return;
          parallel_ranges(threads, bytes, 256 * kKiB,
                          [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
        };
      });
}

}  // namespace

Result<Recipe> reorder_recipe(const Problem& p) {
  if (p.node.inputs.size() != 1) return fail(ErrorCode::kUnsupported, "the CPU backend reorders one value per node");
  const std::string &from = p.in(0).layout, &to = p.attrs().text("layout");
  if (from == to) return plain_copy(p);
  PLIMSOLL_ASSIGN(const auto descs, both_descs(from, to));
  const dnnl::reorder::primitive_desc desc(p.machine.engine, descs.first, p.machine.engine, descs.second,
                                           scratchpad_attributes(), true);
  if (!desc) return fail(ErrorCode::kUnsupported, fmt::format("oneDNN cannot reorder '{}' to '{}'", from, to));
  Recipe recipe;
  recipe.offer.kernel = fmt::format("reorder:{}", desc.impl_info_str());
  recipe.offer.inputs = {{from, from.empty() ? 0 : p.in(0).bytes()}};
  recipe.offer.outputs = {{to, to.empty() ? 0 : static_cast<Bytes>(descs.second.get_size())}};
  recipe.offer.workspace = align_up(static_cast<Bytes>(desc.scratchpad_desc().get_size()));
  // Weights are small enough to stay in cache, but transposing them costs more than a plain copy.
  recipe.offer.seconds = p.machine.seconds(0, 1, 2 * p.traffic());
  recipe.offer.primitives = 1;
  recipe.offer.primitive_key = primitive_key(p.graph, p.node, recipe.offer.kernel);
  recipe.bind = [&machine = p.machine, desc, descs](const BoundNode& node) {
    return bind_primitive(machine, desc,
                          {{DNNL_ARG_FROM, descs.first, node.inputs[0]}, {DNNL_ARG_TO, descs.second, node.outputs[0]}},
                          node);
  };
  return recipe;
}

}  // namespace plimsoll::engine::cpu
