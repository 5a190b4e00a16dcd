// Built-in models, which need no file. `plimsoll plan --list` lists them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/description.h"

namespace plimsoll::engine {

struct BuiltinModel {
  std::string name, summary;
};
const std::vector<BuiltinModel>& builtin_models();
std::optional<Description> builtin_model(const std::string& name);

}  // namespace plimsoll::engine
