// Reads Keras's configuration objects. Every key must be read or explicitly ignored, so that no option of a file is
// silently dropped. Wrong types are recorded, never thrown.
#pragma once

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

using Json = nlohmann::json;

// What a call written in Python is made of, beside layers and operations (traced.cpp). The Python package makes it; no
// file of Keras holds it.
inline constexpr std::string_view kTracedModule = "plimsoll.traced";
inline constexpr std::string_view kTracedLoss = "TracedLoss";

// The problems of a file: all unsupported features, and the first invalid entry.
struct Issues {
  std::vector<std::string> unsupported;
  std::vector<std::string> remedies;  // how to resolve them
  std::optional<Error> bad;

  void unknown(std::string what);  // listed once
  void remedy(std::string what);   // listed once
  void custom_code();              // adds the remedy for features that only Python can run
  void reject(std::string what);   // kBadConfig
  Status status() const;           // kUnsupported with the whole list, else kBadConfig, else success
};

// Returns the member with that name; null if there is none or `object` is not an object.
const Json* member(const Json& object, const std::string& key);
// Returns the member if it is text, else "".
std::string text_member(const Json& object, const std::string& key);
// Returns the value if it is an integer that fits int64_t.
std::optional<int64_t> as_integer(const Json& value);
std::optional<double> as_number(const Json& value);  // only finite numbers
std::string shown(const Json& value);                // JSON text for messages, shortened if long
std::string lower_case(std::string text);            // Keras accepts some names in any case

// A serialised Keras object {"class_name": ..., "config": ...}, or just its name.
struct KerasObject {
  std::string name;  // "" if it has none
  Json config = Json::object();
  bool custom = false;    // registered by a user
  bool function = false;  // a function with that name, not a class
};
KerasObject keras_object(const Json& value);
bool is_keras_object(const Json& value);  // returns whether it is an object with "class_name"

// The largest stride, dilation, kernel or padding accepted, so that products with any dimension fit int64_t.
inline constexpr int64_t kMostGeometry = int64_t{1} << 16;
inline constexpr int64_t kMostElements = int64_t{1} << 46;

// One number for each of the 1, 2 or 3 spatial dimensions of an image.
using Sizes = std::vector<int64_t>;

class Config {
 public:
  // Every message begins with `where`: "layer 'conv1' (Conv2D)". `call` is the call of a Functional file that the
  // object is read for; null if there is none.
  Config(const Json& config, std::string where, Issues& issues, const struct CallArguments* call = nullptr);

  const std::string& where() const { return where_; }
  Issues& issues() const { return *issues_; }

  const Json* value(const std::string& key);   // null if missing or JSON null
  bool is_null(const std::string& key) const;  // present and JSON null
  int64_t integer(const std::string& key, int64_t least, int64_t most, std::optional<int64_t> otherwise = {});
  double real(const std::string& key, double otherwise);
  std::optional<double> optional_real(const std::string& key);
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  std::string choice(const std::string& key, std::initializer_list<std::string_view> allowed,
                     const std::string& otherwise);
  // Reads `rank` integers, given as one integer for all or as a list.
  Sizes sizes(const std::string& key, size_t rank, int64_t least, std::optional<Sizes> otherwise = {});
  // Reads the margins before and after the image in each dimension: one integer for all, one per dimension, or a pair
  // per dimension.
  std::vector<std::array<int64_t, 2>> margins(const std::string& key, size_t rank, int64_t otherwise);

  // The key is supported only with these values (or null). Any other value is listed as unsupported.
  void only(const std::string& key, std::initializer_list<Json> meaningless = {});
  // The keys do not affect the computation.
  void ignore(std::initializer_list<std::string_view> keys);
  // Lists every key that was neither read nor ignored. Null counts as absent.
  void finish();

  // The call that the object is read for. A parser that uses this is run once per call (tree.cpp), and reads the
  // arguments through Arguments (arguments.h). All other layers read only the tensors of their first argument.
  const struct CallArguments& call();
  bool used_call() const { return used_call_; }

 private:
  void wrong(const std::string& key, std::string_view wanted, const Json* got);

  const Json* config_;
  std::string where_;
  Issues* issues_;
  const struct CallArguments* call_;
  bool used_call_ = false;
  std::set<std::string> known_;
};

}  // namespace plimsoll::engine
