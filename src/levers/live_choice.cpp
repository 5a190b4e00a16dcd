#include "levers/live_choice.h"

#include <algorithm>

namespace plimsoll::engine {

LiveChoice::LiveChoice(const LiveEstimate& estimate, Bytes cap)
    : saved_(estimate.saved()),
      cap_(cap),
      recomputed_(saved_.size(), false),
      readers_(saved_.size()),
      live_(estimate.live(recomputed_)),
      delta_(live_.size() + 1, 0) {
  for (size_t a = 0; a < saved_.size(); ++a) {
    first_.push_back(saved_[a].first);
    last_.push_back(saved_[a].last);
    for (int source : saved_[a].sources) readers_[static_cast<size_t>(source)].push_back(static_cast<int>(a));
  }
  for (Bytes live : live_) above_ += std::max<Bytes>(0, live - cap_);
}

void LiveChoice::set_alive(int first, int last, Bytes bytes) {
  if (first > last) return;
  delta_[static_cast<size_t>(first)] += bytes;
  delta_[static_cast<size_t>(last) + 1] -= bytes;
  from_ = std::min(from_, first);
  to_ = std::max(to_, last + 1);
}

// Adds or removes the bytes of an activation as recomputed_, first_ and last_ have it; as in LiveEstimate::load().
void LiveChoice::add_spans(size_t a, int sign) {
  const SavedActivation& saved = saved_[a];
  const Bytes bytes = sign * saved.bytes;
  if (!recomputed_[a]) return set_alive(saved.made, std::max(saved.forward_last, last_[a]), bytes);
  set_alive(saved.made, saved.forward_last, bytes);
  set_alive(first_[a], last_[a], bytes);
  set_alive(first_[a], first_[a], sign * saved.scratch);
}

void LiveChoice::move_sources(size_t a) {
  for (int source : saved_[a].sources) {
    queue_.push_back(source);
    std::push_heap(queue_.begin(), queue_.end());
  }
}

// Flips `a` in recomputed_, first_ and last_, and collects what changes in delta_ and moved_.
void LiveChoice::change(size_t a) {
  from_ = static_cast<int>(live_.size());
  to_ = 0;
  moved_.clear();
  add_spans(a, -1);
  recomputed_[a] = !recomputed_[a];
  add_spans(a, 1);
  move_sources(a);
  // Readers come after their sources in the program, so the largest number first has all its readers settled.
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const auto s = static_cast<size_t>(queue_.back());
    queue_.pop_back();
    int first = saved_[s].first, last = saved_[s].last;
    for (int reader : readers_[s]) {
      if (!recomputed_[static_cast<size_t>(reader)]) continue;
      first = std::min(first, first_[static_cast<size_t>(reader)]);
      last = std::max(last, first_[static_cast<size_t>(reader)]);
    }
    if (first == first_[s] && last == last_[s]) continue;
    moved_.push_back({s, first_[s], last_[s]});
    add_spans(s, -1);
    first_[s] = first;
    last_[s] = last;
    add_spans(s, 1);
    if (recomputed_[s]) move_sources(s);
  }
}

// Returns above_ with delta_ applied, and clears delta_. With `keep`, delta_ becomes part of live_.
Bytes LiveChoice::changed_above(bool keep) {
  Bytes above = above_, change = 0;
  const auto end = std::min(static_cast<size_t>(to_) + 1, delta_.size());
  for (auto n = static_cast<size_t>(from_); n < end; ++n) {
    change += delta_[n];
    delta_[n] = 0;
    if (change == 0 || n >= live_.size()) continue;
    above += std::max<Bytes>(0, live_[n] + change - cap_) - std::max<Bytes>(0, live_[n] - cap_);
    if (keep) live_[n] += change;
  }
  return above;
}

double LiveChoice::above_if_flipped(size_t a) {
  change(a);
  const Bytes above = changed_above(false);
  recomputed_[a] = !recomputed_[a];
  for (auto old = moved_.rbegin(); old != moved_.rend(); ++old) {
    first_[old->activation] = old->first;
    last_[old->activation] = old->last;
  }
  return static_cast<double>(above);
}

void LiveChoice::flip(size_t a) {
  change(a);
  above_ = changed_above(true);
}

}  // namespace plimsoll::engine
