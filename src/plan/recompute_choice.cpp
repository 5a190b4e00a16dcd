#include "plan/recompute_choice.h"

#include <algorithm>

namespace plimsoll::engine {

RecomputeChoice::RecomputeChoice(const RecomputeUnits& units)
    : all_(&units), units_(units.units), live_(units.live), seconds_(units.seconds) {
  for (const RecomputeUnit& unit : units_) {
    dropped_.push_back(unit.is_behind() && unit.droppable);
    at_.emplace_back();
    last_.push_back(unit.after);
  }
  until_end_.assign(units_.size(), false);
  here_.resize(live_.size());
  held_.resize(live_.size());
  place_.assign(units.of_value.size(), 0);
  beside_.assign(live_.size(), 0);
  most_.resize((live_.size() + kBlock - 1) / kBlock);
  least_.resize(most_.size());
  for (size_t block = 0; block < most_.size(); ++block) measure_block(block);
}

void RecomputeChoice::measure_block(size_t block) {
  const auto first = live_.begin() + static_cast<std::ptrdiff_t>(block * kBlock);
  const auto end = live_.begin() + static_cast<std::ptrdiff_t>(std::min(live_.size(), (block + 1) * kBlock));
  const auto [least, most] = std::minmax_element(first, end);
  least_[block] = *least;
  most_[block] = *most;
}

void RecomputeChoice::set_cap(Bytes cap) {
  cap_ = cap;
  above_ = 0;
  for (const Bytes live : live_) above_ += std::max<Bytes>(0, live - cap_);
}

void RecomputeChoice::set_alive(int first, int end, Bytes bytes) {
  if (first >= end || bytes == 0) return;
  delta_.emplace_back(first, bytes);
  delta_.emplace_back(end, -bytes);
}

// Adds or removes what a unit changes in the live bytes, compared with its value being kept until `before`. What is
// live only while other values are recomputed before one node is counted by beside().
void RecomputeChoice::add_spans(size_t u, int sign) {
  const RecomputeUnit& unit = units_[u];
  const Bytes bytes = sign * unit.bytes;
  const int end = until_end_[u] ? last_[u] + 1 : last_[u];
  if (!dropped_[u]) {
    if (unit.is_behind()) set_alive(unit.after + 1, end, bytes);
    return;
  }
  if (!unit.is_behind()) set_alive(unit.after + 1, unit.before, -bytes);
  if (unit.fused) {
    set_alive(unit.before, unit.gone_until, -bytes);
  } else if (!at_[u].empty()) {
    set_alive(at_[u].front(), unit.is_behind() ? end : unit.before, bytes);
  }
}

// Whether the value is recomputed before the node only for other values that are recomputed there.
bool RecomputeChoice::is_brief(size_t u, int node) const {
  const RecomputeUnit& unit = units_[u];
  if (unit.fused) return true;
  return unit.is_behind() && last_[u] == node && !until_end_[u];
}

// Whether the value lives until the node, but not while it runs: values that are recomputed before the node read it.
bool RecomputeChoice::is_held(size_t u) const {
  const RecomputeUnit& unit = units_[u];
  if (!unit.is_behind() || until_end_[u] || last_[u] <= unit.after) return false;
  return !dropped_[u] || (!at_[u].empty() && at_[u].front() < last_[u]);
}

// Enters a unit in the lists of the nodes at which it counts, or removes it.
void RecomputeChoice::list(size_t u, bool enters) {
  const auto change = [&](std::vector<size_t>& units) {
    const auto place = std::lower_bound(units.begin(), units.end(), u);
    if (enters)
      units.insert(place, u);
    else
      units.erase(place);
  };
  const RecomputeUnit& unit = units_[u];
  for (const int node : at_[u])
    if (!unit.fused || !std::binary_search(unit.readers.begin(), unit.readers.end(), node))
      change(here_[static_cast<size_t>(node)]);
  if (is_held(u)) change(held_[static_cast<size_t>(last_[u])]);
}

void RecomputeChoice::touch(size_t u) {
  for (const int node : at_[u]) touched_.emplace_back(node, 0);
  if (units_[u].is_behind() && last_[u] > units_[u].after) touched_.emplace_back(last_[u], 0);
}

// Returns what recomputing values before the node needs beyond the bytes that are live at the node itself. The node's
// own results are not there yet, and neither are values that are recomputed later in the sequence.
Bytes RecomputeChoice::beside(int node) {
  const std::vector<size_t>& sequence = here_[static_cast<size_t>(node)];
  if (sequence.empty()) return 0;
  Bytes more = 0, brief = -all_->starts[static_cast<size_t>(node)];
  for (const size_t u : held_[static_cast<size_t>(node)]) brief += units_[u].bytes;
  last_reader_.assign(sequence.size(), 0);
  for (size_t i = 0; i < sequence.size(); ++i) {
    place_[static_cast<size_t>(units_[sequence[i]].value)] = static_cast<int>(i) + 1;
    last_reader_[i] = i;
    if (!is_brief(sequence[i], node)) brief -= units_[sequence[i]].bytes;
    for (const ValueId source : units_[sequence[i]].sources)
      if (const int k = place_[static_cast<size_t>(source)]; k > 0) last_reader_[static_cast<size_t>(k) - 1] = i;
  }
  for (size_t i = 0; i < sequence.size(); ++i) {
    const RecomputeUnit& unit = units_[sequence[i]];
    brief += unit.bytes;
    more = std::max(more, brief + unit.scratch);
    for (const ValueId source : unit.sources) {
      const auto k = static_cast<size_t>(place_[static_cast<size_t>(source)]);
      if (k > 0 && last_reader_[k - 1] == i && is_brief(sequence[k - 1], node)) brief -= units_[sequence[k - 1]].bytes;
    }
  }
  for (const size_t u : sequence) place_[static_cast<size_t>(units_[u].value)] = 0;
  return more;
}

// Brings beside_ up to date at the nodes that were touched, and notes what it was.
void RecomputeChoice::settle_sequences() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (auto& [node, old] : touched_) {
    const auto n = static_cast<size_t>(node);
    old = beside_[n];
    beside_[n] = beside(node);
    set_alive(node, node + 1, beside_[n] - old);
  }
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
  at_now_.clear();
  int last = unit.after;
  bool until_end = false;
  if (dropped_[u] || unit.is_behind()) {
    needs_.clear();
    for (const int reader : all_->read_by[static_cast<size_t>(unit.value)])
      for (const int at : at_[static_cast<size_t>(reader)])
        if (unit.after < at && (unit.fused || at < unit.before)) needs_.push_back(at);
    for (const int at : needs_) last = std::max(last, at);
    for (const int reader : all_->read_by[static_cast<size_t>(unit.value)]) {
      const std::vector<int>& inside = units_[static_cast<size_t>(reader)].readers;
      until_end = until_end ||
                  (dropped_[static_cast<size_t>(reader)] && std::binary_search(inside.begin(), inside.end(), last));
    }
  }
  if (dropped_[u] && unit.fused) {
    at_now_ = unit.readers;
    at_now_.insert(at_now_.end(), needs_.begin(), needs_.end());
    std::sort(at_now_.begin(), at_now_.end());
    at_now_.erase(std::unique(at_now_.begin(), at_now_.end()), at_now_.end());
  } else if (dropped_[u] && (!needs_.empty() || !unit.is_behind())) {
    const int first = needs_.empty() ? unit.before : *std::min_element(needs_.begin(), needs_.end());
    at_now_ = {std::min(first, unit.before)};
  }
  if (at_now_ == at_[u] && last == last_[u] && until_end == until_end_[u]) return false;
  at_[u] = at_now_;
  last_[u] = last;
  until_end_[u] = until_end;
  return true;
}

// Adds waits of the values that recomputing a unit reads to the queue: those to which it can matter that the unit was
// recomputed before the nodes `before` and is now recomputed before the nodes `now`.
void RecomputeChoice::queue_sources(size_t u, const std::vector<int>& before, const std::vector<int>& now) {
  int first = INT32_MAX, last = -1;
  for (const auto* places : {&before, &now})
    for (const int at : *places) first = std::min(first, at), last = std::max(last, at);
  for (const ValueId source : units_[u].sources) {
    const auto [begin, end] = all_->of_value[static_cast<size_t>(source)];
    for (int i = begin; i < end; ++i) {
      const auto s = static_cast<size_t>(i);
      const RecomputeUnit& unit = units_[s];
      const bool reached = unit.after < last && (unit.fused || first < unit.before);
      if (!reached || !(dropped_[s] || unit.is_behind())) continue;
      queue_.push_back(s);
      std::push_heap(queue_.begin(), queue_.end());
    }
  }
}

// Flips a unit, and collects what changes in delta_ and moved_.
void RecomputeChoice::change(size_t flipped) {
  moved_.clear();
  touched_.clear();
  queue_ = {flipped};
  bool first = true;
  // Readers come after their sources, so of the units in the queue the last has all its readers settled.
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const size_t u = queue_.back();
    queue_.pop_back();
    if (!moved_.empty() && moved_.back().unit == u) continue;
    moved_.push_back({u, at_[u], last_[u], until_end_[u]});
    add_spans(u, -1);
    list(u, false);
    touch(u);
    seconds_ -= seconds_of(u);
    if (first) dropped_[u] = !dropped_[u];
    const bool settled = settle(u);
    add_spans(u, 1);
    list(u, true);
    touch(u);
    seconds_ += seconds_of(u);
    if (!settled && !first) {
      moved_.pop_back();
      continue;
    }
    first = false;
    if (at_[u] != moved_.back().at) queue_sources(u, moved_.back().at, at_[u]);
  }
  settle_sequences();
}

// By how much the bytes above the cap change at the nodes [first, end) if `change` more bytes are live at each.
Bytes RecomputeChoice::above_in(size_t first, size_t end, Bytes change) const {
  Bytes sum = 0;
  while (first < end) {
    const size_t block = first / kBlock, block_end = std::min(end, (block + 1) * kBlock);
    const auto nodes = static_cast<Bytes>(block_end - first);
    if (least_[block] >= cap_ && least_[block] + change >= cap_) {
      sum += nodes * change;
    } else if (most_[block] > cap_ || most_[block] + change > cap_) {
      for (size_t n = first; n < block_end; ++n)
        sum += std::max<Bytes>(0, live_[n] + change - cap_) - std::max<Bytes>(0, live_[n] - cap_);
    }
    first = block_end;
  }
  return sum;
}

void RecomputeChoice::change_live(size_t first, size_t end, Bytes change) {
  for (size_t n = first; n < end; ++n) live_[n] += change;
  for (size_t block = first / kBlock; block * kBlock < end; ++block) measure_block(block);
}

// Returns above_ with delta_ applied, and clears delta_. With `keep`, delta_ becomes part of live_.
Bytes RecomputeChoice::changed_above(bool keep) {
  std::sort(delta_.begin(), delta_.end());
  Bytes above = above_, change = 0;
  for (size_t i = 0; i < delta_.size(); ++i) {
    change += delta_[i].second;
    const auto first = static_cast<size_t>(delta_[i].first);
    const size_t end = i + 1 < delta_.size() ? static_cast<size_t>(delta_[i + 1].first) : live_.size();
    if (change == 0 || first >= std::min(end, live_.size())) continue;
    above += above_in(first, std::min(end, live_.size()), change);
    if (keep) change_live(first, std::min(end, live_.size()), change);
  }
  delta_.clear();
  return above;
}

RecomputeChoice::Effect RecomputeChoice::if_flipped(size_t unit) {
  const double before = seconds_;
  change(unit);
  Effect effect{0, seconds_ - before, true};
  for (const Moved& moved : moved_)
    if (!at_[moved.unit].empty() && at_[moved.unit].back() > units_[moved.unit].limit) effect.possible = false;
  effect.above = static_cast<double>(changed_above(false));
  for (const Moved& moved : moved_) list(moved.unit, false);
  dropped_[unit] = !dropped_[unit];
  for (auto old = moved_.rbegin(); old != moved_.rend(); ++old) {
    at_[old->unit] = std::move(old->at);
    last_[old->unit] = old->last;
    until_end_[old->unit] = old->until_end;
  }
  for (const Moved& moved : moved_) list(moved.unit, true);
  for (const auto& [node, old] : touched_) beside_[static_cast<size_t>(node)] = old;
  seconds_ = before;
  return effect;
}

void RecomputeChoice::flip(size_t unit) {
  change(unit);
  above_ = changed_above(true);
}

}  // namespace plimsoll::engine
