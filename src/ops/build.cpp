#include "ops/build.h"

#include <fmt/format.h>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

Result<std::vector<TensorType>> infer(const std::string& op, std::span<const TensorType> inputs, const Attrs& attrs) {
  const OpDef* def = find_op(op);
  if (!def) return fail(ErrorCode::kInternal, fmt::format("there is no op '{}'", op));
  return def->infer(inputs, attrs);
}

}  // namespace

GraphBuilder make_builder(Graph graph) {
  return GraphBuilder(std::move(graph), infer);
}

}  // namespace plimsoll::engine
