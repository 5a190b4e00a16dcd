// Reads Keras's configuration objects. Every key must be read or declared meaningless, so that nothing a file asks for
// is ignored in silence; wrong types are recorded, never thrown.
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

// What is wrong with a file: things it asks for that we do not do, all of them, and the first thing that makes no
// sense.
struct Issues {
  std::vector<std::string> unsupported;
  std::vector<std::string> remedies;  // what to do about them
  std::optional<Error> bad;

  void unknown(std::string what);  // listed once
  void remedy(std::string what);   // listed once
  void custom_code();              // the remedy for what only Python can run
  void reject(std::string what);   // kBadConfig
  Status status() const;           // kUnsupported with everything listed, else kBadConfig, else fine
};

// The member of that name, or null: also when `object` is no object.
const Json* member(const Json& object, const std::string& key);
// The member if it is text, else "".
std::string text_member(const Json& object, const std::string& key);
// An integer that int64_t holds.
std::optional<int64_t> as_integer(const Json& value);
std::optional<double> as_number(const Json& value);  // finite
std::string shown(const Json& value);                // for messages: JSON text, cut when long
std::string lower_case(std::string text);            // Keras takes some names however they are written

// A serialised Keras object, {"class_name": ..., "config": ...}, or the bare name of one.
struct KerasObject {
  std::string name;  // "" where there is none
  Json config = Json::object();
  bool custom = false;    // registered by a user
  bool function = false;  // a function of that name, not a class
};
KerasObject keras_object(const Json& value);
bool is_keras_object(const Json& value);  // an object with "class_name"

// Largest stride, dilation, kernel or padding read: products with any dimension stay inside int64_t.
inline constexpr int64_t kMostGeometry = int64_t{1} << 16;
inline constexpr int64_t kMostElements = int64_t{1} << 46;

// One number per spatial dimension of an image: 1, 2 or 3 of them.
using Sizes = std::vector<int64_t>;

class Config {
 public:
  // `where` opens every message: "layer 'conv1' (Conv2D)".
  Config(const Json& config, std::string where, Issues& issues);

  const std::string& where() const { return where_; }
  Issues& issues() const { return *issues_; }

  const Json* value(const std::string& key);  // null where missing or JSON null
  int64_t integer(const std::string& key, int64_t least, int64_t most, std::optional<int64_t> otherwise = {});
  double real(const std::string& key, double otherwise);
  std::optional<double> optional_real(const std::string& key);
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  std::string choice(const std::string& key, std::initializer_list<std::string_view> allowed,
                     const std::string& otherwise);
  // `rank` integers, written as one for all or as a list of them.
  Sizes sizes(const std::string& key, size_t rank, int64_t least, std::optional<Sizes> otherwise = {});
  // What is before and after the image along each dimension: one integer for all, one per dimension, or a pair each.
  std::vector<std::array<int64_t, 2>> margins(const std::string& key, size_t rank, int64_t otherwise);

  // The key has a meaning we do not do: any value but these (or null) is listed.
  void only(const std::string& key, std::initializer_list<Json> meaningless = {});
  // The key changes nothing that we compute.
  void ignore(std::initializer_list<std::string_view> keys);
  // Lists every key that was neither read nor declared. Null values mean "not asked for".
  void finish();

 private:
  void wrong(const std::string& key, std::string_view wanted, const Json* got);

  const Json* config_;
  std::string where_;
  Issues* issues_;
  std::set<std::string> known_;
};

}  // namespace plimsoll::engine
