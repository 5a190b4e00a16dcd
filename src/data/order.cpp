#include "data/order.h"

#include <cassert>
#include <cmath>

#include "base/philox.h"

namespace plimsoll::engine {
namespace {

// Used as the counter's last word. No other user of the seed has this value, so orders are independent of masks and
// weights.
constexpr uint32_t kOrderDomain = 0x73687566;

// Stafford's variant 13 of the 64-bit finalizer, as in splitmix64: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Scales a word to [0, limit) by its upper bits. Since limit < 2^32, the bias is below 2^-32.
uint64_t below(uint64_t limit, uint64_t word) {
  return ((word >> 32) * limit) >> 32;
}

uint64_t add_modulo(uint64_t x, uint64_t y, uint64_t modulus) {
  const uint64_t sum = x + y;
  return sum >= modulus ? sum - modulus : sum;
}

}  // namespace

SampleOrder::SampleOrder(int64_t samples, uint64_t seed, int64_t epoch)
    : samples_(static_cast<uint64_t>(samples)), rounds_(samples >= kFewRoundsFrom ? kFewRounds : kMostRounds) {
  assert(samples > 0 && samples <= (int64_t{1} << 62));
  a_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(samples)));
  while (a_ * a_ < samples_) ++a_;  // sqrt may return too small a value, because it rounds from 2^53 up
  b_ = (samples_ + a_ - 1) / a_;
  const auto e = static_cast<uint64_t>(epoch);
  for (uint32_t i = 0; i < kMostRounds / 2; ++i) {
    const auto words = Philox::draw(seed, {i, static_cast<uint32_t>(e), static_cast<uint32_t>(e >> 32), kOrderDomain});
    keys_[size_t{2} * i] = uint64_t{words[0]} << 32 | words[1];
    keys_[size_t{2} * i + 1] = uint64_t{words[2]} << 32 | words[3];
  }
}

uint64_t SampleOrder::shuffled_once(uint64_t position) const {
  uint64_t left = position / b_, right = position % b_;
  for (int round = 0; round < rounds_; round += 2) {
    left = add_modulo(left, below(a_, mix(right ^ keys_[round])), a_);
    right = add_modulo(right, below(b_, mix(left ^ keys_[round + 1])), b_);
  }
  return left * b_ + right;
}

uint64_t SampleOrder::unshuffled_once(uint64_t sample) const {
  uint64_t left = sample / b_, right = sample % b_;
  for (int round = rounds_ - 2; round >= 0; round -= 2) {
    right = add_modulo(right, b_ - below(b_, mix(left ^ keys_[round + 1])), b_);
    left = add_modulo(left, a_ - below(a_, mix(right ^ keys_[round])), a_);
  }
  return left * b_ + right;
}

int64_t SampleOrder::position_of(int64_t sample) const {
  assert(sample >= 0 && static_cast<uint64_t>(sample) < samples_);
  uint64_t position = unshuffled_once(static_cast<uint64_t>(sample));
  while (position >= samples_) position = unshuffled_once(position);
  return static_cast<int64_t>(position);
}

int64_t SampleOrder::operator()(int64_t position) const {
  assert(position >= 0 && static_cast<uint64_t>(position) < samples_);
  uint64_t sample = shuffled_once(static_cast<uint64_t>(position));
  while (sample >= samples_) sample = shuffled_once(sample);  // terminates: the cycle contains `position` itself
  return static_cast<int64_t>(sample);
}

}  // namespace plimsoll::engine
