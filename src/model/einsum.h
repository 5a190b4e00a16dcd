// Products of tensors in Einstein's notation, "bij,bjk->bik", as transposes, matrix products and sums.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"

namespace plimsoll::engine {

// One letter per dimension.
struct EinsumLabels {
  std::vector<std::string> inputs;
  std::string output;
};

// Reads an equation for tensors of these ranks. An ellipsis becomes letters of its own; without "->" the output has the
// letters that occur once, in alphabetical order. Fails with kBadGeometry.
Result<EinsumLabels> read_einsum(std::string_view equation, std::span<const size_t> ranks, const std::string& where);

// Fails with kBadGeometry unless every letter means one size (a dimension of 1 does not broadcast).
Status check_einsum(const EinsumLabels& labels, std::span<const Shape> shapes, const std::string& where);

// Adds the product. The labels and shapes have been checked.
ValueId einsum(GraphBuilder& b, const EinsumLabels& labels, std::vector<ValueId> operands);

}  // namespace plimsoll::engine
