#include "model/text/token_table.h"

#include "model/text/fingerprint.h"

namespace plimsoll::engine {

std::string_view TokenTable::operator[](int64_t number) const {
  const auto i = static_cast<size_t>(number);
  const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

size_t TokenTable::slot(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t at = fingerprint64(token) & mask;
  while (slots_[at] != 0 && (*this)[slots_[at] - 1] != token) at = (at + 1) & mask;
  return at;
}

void TokenTable::grow() {
  constexpr size_t kLeast = 16;
  slots_.assign(slots_.empty() ? kLeast : slots_.size() * 2, 0);
  for (size_t i = 0; i < ends_.size(); ++i)
    slots_[slot((*this)[static_cast<int64_t>(i)])] = static_cast<uint32_t>(i) + 1;
}

bool TokenTable::add(std::string_view token) {
  if ((ends_.size() + 1) * 2 > slots_.size()) grow();
  const size_t at = slot(token);
  if (slots_[at] != 0) return false;
  text_ += token;
  ends_.push_back(text_.size());
  slots_[at] = static_cast<uint32_t>(ends_.size());
  return true;
}

std::optional<int64_t> TokenTable::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const uint32_t found = slots_[slot(token)];
  return found != 0 ? std::optional<int64_t>(found - 1) : std::nullopt;
}

Bytes TokenTable::bytes() const {
  return static_cast<Bytes>(text_.capacity() + ends_.capacity() * sizeof(uint64_t) +
                            slots_.capacity() * sizeof(uint32_t));
}

void TokenTable::shrink() {
  text_.shrink_to_fit();
  ends_.shrink_to_fit();
}

}  // namespace plimsoll::engine
