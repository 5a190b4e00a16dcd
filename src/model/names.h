// Names of Keras: which ones we know, which ones Keras has beside them. A name that is neither is a slip of the user's,
// and gets a suggestion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

struct KerasNames {
  std::vector<std::string> supported;  // as users write them
  std::vector<std::string> others;     // in Keras, not here; any case, with or without underscores
};

const KerasNames& optimizer_names();
const KerasNames& loss_names();
const KerasNames& metric_names();
const KerasNames& activation_names();
const KerasNames& initializer_names();

// Whether Keras has this name, here supported or not.
bool in_keras(const KerasNames& names, std::string_view name);

// "; did you mean 'relu'?" for a name that Keras does not have and that is near one we know, else "".
std::string did_you_mean(const KerasNames& names, std::string_view name);

}  // namespace plimsoll::engine
