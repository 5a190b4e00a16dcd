// Files in the cache folder that save work and may be lost: compiled kernels, and which engine was fastest.
#pragma once

#include <optional>
#include <string>

namespace plimsoll::cuda {

std::optional<std::string> read_cached(const std::string& name);
void write_cached(const std::string& name, const std::string& content);  // aside, then renamed; failures are ignored

}  // namespace plimsoll::cuda
