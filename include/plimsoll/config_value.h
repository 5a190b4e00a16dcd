#pragma once

#include <memory>
#include <string>

#pragma GCC visibility push(default)
namespace plimsoll {

namespace engine {
struct Access;      // gives the library access to private members
struct ConfigJson;  // a Keras configuration
}  // namespace engine

/// A serialised Keras object, such as an initializer or an optimizer, as an opaque and immutable value.
/// The value is not checked when it is made. sequential(), functional() and Description::compile() check it and return
/// an error, for example for a number that is not finite, text that is not UTF-8, or an argument out of range.
class ConfigValue {
 public:
  /// Returns the object as JSON text, in the form that Keras writes. Numbers that are not finite become null and bytes
  /// that are not UTF-8 are replaced.
  std::string to_json() const;

 protected:
  /// @cond internal
  explicit ConfigValue(const std::string& keras_name);
  explicit ConfigValue(const char* keras_name) : ConfigValue(std::string(keras_name != nullptr ? keras_name : "")) {}
  explicit ConfigValue(std::shared_ptr<const engine::ConfigJson> json) : json_(std::move(json)) {}
  // There are no move operations, so that a moved-from object keeps its value.
  /// Copies share their configuration.
  ConfigValue(const ConfigValue&) = default;
  /// Copies share their configuration.
  ConfigValue& operator=(const ConfigValue&) = default;
  ~ConfigValue() = default;
  /// @endcond

 private:
  friend struct engine::Access;
  std::shared_ptr<const engine::ConfigJson> json_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
