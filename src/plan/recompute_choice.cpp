#include "plan/recompute_choice.h"

#include <algorithm>

namespace plimsoll::engine {

RecomputeChoice::RecomputeChoice(const RecomputeUnits& units)
    : all_(&units), units_(units.units), live_(units.live), seconds_(units.seconds), delta_(units.live.size() + 1, 0) {
  for (const RecomputeUnit& unit : units_) {
    dropped_.push_back(unit.is_behind() && unit.droppable);
    at_.emplace_back();
    last_.push_back(unit.after);
  }
}

void RecomputeChoice::set_cap(Bytes cap) {
  cap_ = cap;
  above_ = 0;
  for (const Bytes live : live_) above_ += std::max<Bytes>(0, live - cap_);
}

Bytes RecomputeChoice::peak() const {
  return live_.empty() ? 0 : *std::max_element(live_.begin(), live_.end());
}

void RecomputeChoice::set_alive(int first, int end, Bytes bytes) {
  if (first >= end || bytes == 0) return;
  delta_[static_cast<size_t>(first)] += bytes;
  delta_[static_cast<size_t>(end)] -= bytes;
  from_ = std::min(from_, first);
  to_ = std::max(to_, end);
}

// Adds or removes what a unit changes in the live bytes, compared with its value being kept until `before`.
void RecomputeChoice::add_spans(size_t u, int sign) {
  const RecomputeUnit& unit = units_[u];
  const Bytes bytes = sign * unit.bytes;
  if (!dropped_[u]) {
    if (unit.is_behind()) set_alive(unit.after + 1, last_[u] + 1, bytes);
    return;
  }
  if (!unit.is_behind()) set_alive(unit.after + 1, unit.before, -bytes);
  // A recomputing node runs just before the node at which it is wanted, whose own results are not there yet.
  const auto beside = [&](int at, Bytes needed) {
    set_alive(at, at + 1, sign * std::max<Bytes>(0, needed - all_->starts[static_cast<size_t>(at)]));
  };
  if (unit.fused) {
    set_alive(unit.before, unit.gone_until, -bytes);
    for (const int at : at_[u])
      if (!std::binary_search(unit.readers.begin(), unit.readers.end(), at)) beside(at, unit.bytes + unit.scratch);
    return;
  }
  if (at_[u].empty()) return;
  const int at = at_[u].front();
  set_alive(at, unit.is_behind() ? last_[u] + 1 : unit.before, bytes);
  beside(at, unit.scratch);
}

double RecomputeChoice::seconds_of(size_t u) const {
  const RecomputeUnit& unit = units_[u];
  if (!dropped_[u]) return 0;
  if (unit.fused)
    return unit.fused_seconds - unit.spared_seconds +
           unit.seconds * static_cast<double>(at_[u].size() - unit.readers.size());
  return at_[u].empty() ? 0 : unit.seconds - unit.spared_seconds;
}

// Brings at_ and last_ of a unit up to date with the units that read it. Returns whether they changed.
bool RecomputeChoice::settle(size_t u) {
  const RecomputeUnit& unit = units_[u];
  needs_.clear();
  for (const int reader : all_->read_by[static_cast<size_t>(unit.value)])
    for (const int at : at_[static_cast<size_t>(reader)])
      if (unit.after < at && (unit.fused || at < unit.before)) needs_.push_back(at);
  int last = unit.after;
  for (const int at : needs_) last = std::max(last, at);
  std::vector<int> at;
  if (dropped_[u] && unit.fused) {
    at = unit.readers;
    at.insert(at.end(), needs_.begin(), needs_.end());
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
  } else if (dropped_[u] && (!needs_.empty() || !unit.is_behind())) {
    const int first = needs_.empty() ? unit.before : *std::min_element(needs_.begin(), needs_.end());
    at = {std::min(first, unit.before)};
  }
  if (at == at_[u] && last == last_[u]) return false;
  at_[u] = std::move(at);
  last_[u] = last;
  return true;
}

// Flips a unit, and collects what changes in delta_ and moved_.
void RecomputeChoice::change(size_t flipped) {
  from_ = static_cast<int>(live_.size());
  to_ = 0;
  moved_.clear();
  queue_ = {flipped};
  bool first = true;
  // Readers come after their sources, so of the units in the queue the last has all its readers settled.
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const size_t u = queue_.back();
    queue_.pop_back();
    if (!moved_.empty() && moved_.back().unit == u) continue;
    moved_.push_back({u, at_[u], last_[u]});
    add_spans(u, -1);
    seconds_ -= seconds_of(u);
    if (first) dropped_[u] = !dropped_[u];
    const bool settled = settle(u);
    add_spans(u, 1);
    seconds_ += seconds_of(u);
    if (!settled && !first) {
      moved_.pop_back();
      continue;
    }
    first = false;
    if (at_[u] == moved_.back().at) continue;
    for (const ValueId source : units_[u].sources) {
      const auto [begin, end] = all_->of_value[static_cast<size_t>(source)];
      for (int s = begin; s < end; ++s) {
        queue_.push_back(static_cast<size_t>(s));
        std::push_heap(queue_.begin(), queue_.end());
      }
    }
  }
}

// Returns above_ with delta_ applied, and clears delta_. With `keep`, delta_ becomes part of live_.
Bytes RecomputeChoice::changed_above(bool keep) {
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

RecomputeChoice::Effect RecomputeChoice::if_flipped(size_t unit) {
  const double before = seconds_;
  change(unit);
  Effect effect{0, seconds_ - before, true};
  for (const Moved& moved : moved_)
    if (!at_[moved.unit].empty() && at_[moved.unit].back() > units_[moved.unit].limit) effect.possible = false;
  effect.above = static_cast<double>(changed_above(false));
  dropped_[unit] = !dropped_[unit];
  for (auto old = moved_.rbegin(); old != moved_.rend(); ++old) {
    at_[old->unit] = std::move(old->at);
    last_[old->unit] = old->last;
  }
  seconds_ = before;
  return effect;
}

void RecomputeChoice::flip(size_t unit) {
  change(unit);
  above_ = changed_above(true);
}

}  // namespace plimsoll::engine
