// What Keras's preprocessing layers have in common.
#pragma once

#include <array>
#include <functional>
#include <span>

#include "model/layer.h"

namespace plimsoll::engine {

// A layer from images [N,H,W,C] to images of the same size, which changes nothing outside training. It reads
// data_format; `build` sees channels last.
Layer random_image_layer(Config& c, std::function<ValueId(const BuildCall&)> build);

// Two numbers of a configuration; one number f means [-f, f], cut at `least`.
std::array<double, 2> read_range(Config& c, const char* key, std::array<double, 2> otherwise, double least);

std::span<const LayerClass> random_affine_layers();
std::span<const LayerClass> category_layers();

}  // namespace plimsoll::engine
