// Names in Keras: those that Plimsoll supports, and those that only Keras has. Any other name is probably a typing
// error and gets a suggestion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

struct KerasNames {
  std::vector<std::string> supported;  // in the usual spelling
  std::vector<std::string> others;     // in Keras but not supported; in any case, with or without underscores
};

const KerasNames& optimizer_names();
const KerasNames& loss_names();
const KerasNames& metric_names();
const KerasNames& activation_names();
const KerasNames& initializer_names();

// Returns whether Keras has this name, supported or not.
bool in_keras(const KerasNames& names, std::string_view name);

// Returns "; did you mean 'relu'?" if Keras does not have the name and a supported name is similar, else "".
std::string did_you_mean(const KerasNames& names, std::string_view name);

}  // namespace plimsoll::engine
