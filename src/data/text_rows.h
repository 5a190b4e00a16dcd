// Rows of numbers that the text layers of a model make from strings, while the data are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/match.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {

// The ports of the data themselves: where several calls read one input of strings, that input once.
std::vector<PortSpec> ports_of_data(const std::vector<PortSpec>& ports);

// Replaces arrays of strings, one per port of ports_of_data(), by arrays of numbers, one per port.
Result<std::vector<FoundArray>> numbers_of_strings(std::vector<FoundArray> found, const std::vector<PortSpec>& ports);

// Returns the shape of a sample of the port, for strings whose layer leaves the length open: that of the longest one.
// Reads all samples.
Result<std::vector<int64_t>> shape_of_numbers(FoundArray strings, const PortSpec& port);

}  // namespace plimsoll::engine
