// The settings of the levers. A setting is a whole number; the lever's row in the table (search/lever_table.h) defines
// its meaning, and 0 always means off. This class does not depend on any particular lever.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace plimsoll::engine {

class LeverSettings {
 public:
  int64_t of(std::string_view lever) const {
    const auto found = values_.find(lever);
    return found == values_.end() ? 0 : found->second;
  }
  void set(std::string_view lever, int64_t value) {
    if (value != 0)
      values_.insert_or_assign(std::string(lever), value);
    else if (const auto found = values_.find(lever); found != values_.end())
      values_.erase(found);
  }
  LeverSettings with(std::string_view lever, int64_t value) const {
    LeverSettings changed = *this;
    changed.set(lever, value);
    return changed;
  }

  // The levers that are on, by name.
  const std::map<std::string, int64_t, std::less<>>& values() const { return values_; }
  bool operator==(const LeverSettings&) const = default;

 private:
  std::map<std::string, int64_t, std::less<>> values_;
};

}  // namespace plimsoll::engine
