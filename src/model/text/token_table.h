// The tokens of a vocabulary and their numbers, in two blocks of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

class TokenTable {
 public:
  // Adds a token; its number is how many were there before. Returns false if it is there already.
  bool add(std::string_view token);
  std::optional<int64_t> find(std::string_view token) const;
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view operator[](int64_t number) const;
  Bytes bytes() const;  // memory that it holds
  void shrink();        // gives back memory that is reserved for more

 private:
  // The slot that holds the token, or the empty one where it belongs.
  size_t slot(std::string_view token) const;
  void grow();

  std::string text_;
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> slots_;  // number + 1; 0: empty. Their count is a power of two
};

}  // namespace plimsoll::engine
