// The tables of layers that move values, and of EinsumDense.
#pragma once

#include "model/layer.h"

namespace plimsoll::engine {

std::span<const LayerClass> shape_layers();   // layers_shape.cpp
std::span<const LayerClass> einsum_layers();  // layers_einsum.cpp

}  // namespace plimsoll::engine
