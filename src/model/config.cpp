#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/arguments.h"

namespace plimsoll::engine {

void Issues::unknown(std::string what) {
  if (std::find(unsupported.begin(), unsupported.end(), what) == unsupported.end())
    unsupported.push_back(std::move(what));
}

void Issues::remedy(std::string what) {
  if (std::find(remedies.begin(), remedies.end(), what) == remedies.end()) remedies.push_back(std::move(what));
}

void Issues::custom_code() {
  remedy(
      "rebuild it with Keras's built-in classes: custom Python code cannot be read from a file; "
      "plimsoll.fit(model, ...) in Python trains the live model");
}

void Issues::reject(std::string what) {
  if (!bad) bad = Error{ErrorCode::kBadConfig, std::move(what), {}, {}};
}

Status Issues::status() const {
  if (!unsupported.empty()) {
    const size_t n = unsupported.size();
    Error error{ErrorCode::kUnsupported,
                fmt::format("this model uses {} feature{} that Plimsoll does not support yet", n, n == 1 ? "" : "s"),
                unsupported, remedies};
    error.remedy("docs/keras.md lists the supported features");
    return fail(std::move(error));
  }
  if (bad) return fail(*bad);
  return {};
}

const Json* member(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

std::string text_member(const Json& object, const std::string& key) {
  const Json* value = member(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto n = value.get<uint64_t>();
    if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(n);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string shown(const Json& value) {
  constexpr size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_keras_object(const Json& value) {
  return member(value, "class_name") != nullptr;
}

KerasObject keras_object(const Json& value) {
  KerasObject object;
  if (value.is_string()) {
    object.name = value.get<std::string>();
    return object;
  }
  object.name = text_member(value, "class_name");
  const std::string registered = text_member(value, "registered_name");
  if (object.name == "function") {
    // {"module": "builtins", "class_name": "function", "config": "gelu"}: Keras looks the name up among its own
    // functions.
    object.function = true;
    object.name = text_member(value, "config");
    object.custom = !registered.empty() && registered != "function" && registered != object.name;
    return object;
  }
  if (const Json* config = member(value, "config"); config && config->is_object()) object.config = *config;
  const std::string module = text_member(value, "module");
  const bool own_module = module.empty() || module == kTracedModule || module == "keras" ||
                          module.rfind("keras.", 0) == 0 || module == "builtins";
  // Keras writes the module of its own classes. A class that was not registered has no module, and its registered name
  // equals its name.
  object.custom = !own_module || registered.find('>') != std::string::npos || (module.empty() && !registered.empty()) ||
                  object.name == "__lambda__";
  return object;
}

Config::Config(const Json& config, std::string where, Issues& issues, const CallArguments* call)
    : config_(&config), where_(std::move(where)), issues_(&issues), call_(call) {
  if (!config.is_object())
    issues_->reject(fmt::format("{}: its config must be an object, got {}", where_, shown(config)));
}

void Config::wrong(const std::string& key, std::string_view wanted, const Json* got) {
  issues_->reject(fmt::format("{}: '{}' must be {}, got {}", where_, key, wanted, got ? shown(*got) : "nothing"));
}

const Json* Config::value(const std::string& key) {
  known_.insert(key);
  const Json* found = member(*config_, key);
  return found && !found->is_null() ? found : nullptr;
}

bool Config::is_null(const std::string& key) const {
  const Json* found = member(*config_, key);
  return found != nullptr && found->is_null();
}

int64_t Config::integer(const std::string& key, int64_t least, int64_t most, std::optional<int64_t> otherwise) {
  const Json* found = value(key);
  if (!found && otherwise) return *otherwise;
  const auto n = found ? as_integer(*found) : std::nullopt;
  if (n && *n >= least && *n <= most) return *n;
  wrong(key, fmt::format("an integer from {} to {}", least, most), found);
  return otherwise.value_or(std::max<int64_t>(least, 1));
}

double Config::real(const std::string& key, double otherwise) {
  return optional_real(key).value_or(otherwise);
}

std::optional<double> Config::optional_real(const std::string& key) {
  const Json* found = value(key);
  if (!found) return std::nullopt;
  const auto number = as_number(*found);
  if (!number) wrong(key, "a number", found);
  return number;
}

bool Config::flag(const std::string& key, bool otherwise) {
  const Json* found = value(key);
  if (!found) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  wrong(key, "true or false", found);
  return otherwise;
}

std::string Config::text(const std::string& key, const std::string& otherwise) {
  const Json* found = value(key);
  if (!found) return otherwise;
  if (found->is_string()) return found->get<std::string>();
  wrong(key, "text", found);
  return otherwise;
}

std::string Config::choice(const std::string& key, std::initializer_list<std::string_view> allowed,
                           const std::string& otherwise) {
  const Json* found = value(key);
  if (!found) return otherwise;
  if (!found->is_string()) {
    wrong(key, "text", found);
    return otherwise;
  }
  const auto word = found->get<std::string>();
  for (std::string_view a : allowed)
    if (a == word) return word;
  issues_->unknown(fmt::format("{}: {}={}", where_, key, shown(*found)));
  return otherwise;
}

namespace {

constexpr std::array<std::string_view, 4> kNumbers = {"none", "one", "two", "three"};

std::optional<int64_t> geometry_number(const Json& value, int64_t least) {
  const auto n = as_integer(value);
  return n && *n >= least && *n <= kMostGeometry ? n : std::nullopt;
}

}  // namespace

Sizes Config::sizes(const std::string& key, size_t rank, int64_t least, std::optional<Sizes> otherwise) {
  const Json* found = value(key);
  if (!found && otherwise) return *otherwise;
  Sizes list;
  if (found && found->is_array() && found->size() == rank) {
    for (const Json& one : *found)
      if (const auto n = geometry_number(one, least)) list.push_back(*n);
  } else if (found) {
    if (const auto n = geometry_number(*found, least)) list.assign(rank, *n);
  }
  if (list.size() == rank) return list;
  const std::string wanted = rank == 1 ? "an integer" : fmt::format("an integer, or {},", kNumbers[rank]);
  wrong(key, fmt::format("{} from {} to {}", wanted, least, kMostGeometry), found);
  return otherwise.value_or(Sizes(rank, std::max<int64_t>(least, 1)));
}

std::vector<std::array<int64_t, 2>> Config::margins(const std::string& key, size_t rank, int64_t otherwise) {
  std::vector<std::array<int64_t, 2>> margins(rank, {otherwise, otherwise});
  const Json* found = value(key);
  if (!found) return margins;
  bool good = true;
  const auto one = [&](const Json& j) {
    const auto n = geometry_number(j, 0);
    good = good && n;
    return n.value_or(0);
  };
  // With one dimension, a list of two numbers is its pair.
  if (rank == 1 && found->is_array() && found->size() == 2) {
    margins[0] = {one((*found)[0]), one((*found)[1])};
  } else if (found->is_array() && found->size() == rank) {
    for (size_t d = 0; d < rank; ++d) {
      const Json& side = (*found)[d];
      const bool two = side.is_array() && side.size() == 2;
      margins[d] = {one(two ? side[0] : side), one(two ? side[1] : side)};
    }
  } else {
    const int64_t all = one(*found);
    margins.assign(rank, {all, all});
  }
  if (!good)
    issues_->reject(fmt::format("{}: '{}' must be {} of integers from 0 to {}, got {}", where_, key,
                                rank == 1 ? "a pair" : fmt::format("{} pairs", kNumbers[rank]), kMostGeometry,
                                shown(*found)));
  return margins;
}

void Config::only(const std::string& key, std::initializer_list<Json> meaningless) {
  const Json* found = value(key);
  if (!found) return;
  for (const Json& m : meaningless)
    if (*found == m) return;
  issues_->unknown(fmt::format("{}: {}={}", where_, key, shown(*found)));
}

void Config::ignore(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) known_.insert(std::string(key));
}

void Config::finish() {
  if (!config_->is_object()) return;
  for (const auto& [key, found] : config_->items()) {
    if (known_.count(key) || found.is_null()) continue;
    issues_->unknown(fmt::format("{}: {}={}", where_, key, shown(found)));
  }
}

const CallArguments& Config::call() {
  static const CallArguments none;
  used_call_ = true;
  return call_ ? *call_ : none;
}

}  // namespace plimsoll::engine
