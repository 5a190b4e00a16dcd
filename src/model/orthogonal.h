// Orthonormal vectors for the Orthogonal initializer.
#pragma once

#include <cstddef>
#include <span>

namespace plimsoll::engine {

// Makes `count` vectors of `length` numbers orthonormal, one after the other, by Gram-Schmidt. The result does not
// depend on the number of threads.
void make_orthonormal(std::span<double> vectors, size_t count, size_t length);

}  // namespace plimsoll::engine
