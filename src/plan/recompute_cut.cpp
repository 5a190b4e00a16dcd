#include "plan/recompute_cut.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "plan/min_cut.h"

namespace plimsoll::engine {
namespace {

double price_of(const RecomputeUnit& unit) {
  return std::max(0.0, unit.least_seconds());
}

// What to keep at one node and what to recompute behind it, as a cut: the values on the source's side are recomputed.
class ChoiceAtNode {
 public:
  ChoiceAtNode(const RecomputeUnits& all, int node, Bytes cap, const RecomputeChoice* present)
      : all_(all), room_(cap - (present != nullptr ? present->live() : all.live)[at(node)]) {
    at_node_.assign(all.units.size(), kNone);
    for (size_t u = 0; u < all.units.size(); ++u) {
      const RecomputeUnit& unit = all.units[u];
      const bool is_source = !all.read_by[at(unit.value)].empty();
      const bool is_gone = unit.is_behind() && unit.after < node && is_source;
      const bool may_go = !unit.is_behind() && unit.droppable && frees_at(unit, node);
      if (!is_gone && !may_go) continue;
      at_node_[u] = static_cast<int>(units_.size());
      units_.push_back(u);
      if (present != nullptr ? !present->dropped()[u] : may_go) room_ += unit.bytes;
    }
  }

  // The bound is concave in the price of a byte: between two prices whose choices need too much and too little, the
  // next one is where their lines meet.
  CutAtNode run() {
    build();
    CutAtNode result;
    Choice many = choose(0), few = choose(largest_price());
    if (many.bytes <= room_ || few.bytes > room_) return result;
    for (int i = 0; i < kMostPrices && many.bytes > few.bytes; ++i) {
      const double per_byte = (few.seconds - many.seconds) / static_cast<double>(many.bytes - few.bytes);
      const Choice choice = choose(per_byte);
      result.least_seconds =
          std::max(result.least_seconds, choice.seconds + per_byte * static_cast<double>(choice.bytes - room_));
      const bool is_new = choice.bytes != many.bytes && choice.bytes != few.bytes;
      if (!is_new) break;
      (choice.bytes > room_ ? many : few) = choice;
    }
    result.units = units_;
    result.dropped = std::move(few.dropped);
    return result;
  }

 private:
  static constexpr int kMostPrices = 24;
  static constexpr double kMuchMore = 1e5;
  // Seconds and bytes of one choice; the bytes are those of the values that it keeps.
  struct Choice {
    double seconds = 0;
    Bytes bytes = 0;
    std::vector<bool> dropped;
  };

  static size_t at(int node) { return static_cast<size_t>(node); }
  const RecomputeUnit& unit(size_t i) const { return all_.units[units_[i]]; }
  // Nodes of the cut: is the value needed behind the node, and is it recomputed there?
  static size_t needed(size_t i) { return 2 + 2 * i; }
  static size_t recomputed(size_t i) { return 3 + 2 * i; }

  // The least that recomputing the value costs. A value that only recomputed ones read may be computed in their
  // kernels.
  double price(size_t i) const {
    if (!unit(i).is_behind()) return price_of(unit(i));
    const auto& readers = all_.read_by[at(unit(i).value)];
    const bool may_fuse = unit(i).fusible && std::any_of(readers.begin(), readers.end(),
                                                         [&](int reader) { return all_.units[at(reader)].fusible; });
    return may_fuse ? 0 : unit(i).seconds;
  }

  void build() {
    cut_.emplace(2 + 2 * units_.size());
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!unit(i).is_behind()) cut_->add(0, needed(i), MinCut::kNever);
      keeps_.push_back(cut_->add(needed(i), unit(i).droppable ? recomputed(i) : 1, 0));
      cut_->add(recomputed(i), needed(i), MinCut::kNever);
      if (!unit(i).droppable) continue;
      cut_->add(recomputed(i), 1, price(i));
      for (const ValueId source : unit(i).sources) {
        const auto [begin, end] = all_.of_value[static_cast<size_t>(source)];
        for (int s = begin; s < end; ++s)
          if (at_node_[at(s)] != kNone) cut_->add(recomputed(i), needed(at(at_node_[at(s)])), MinCut::kNever);
      }
    }
  }

  // At this price bytes count for much more than seconds.
  double largest_price() const {
    double seconds = 0, bytes = 1;
    for (size_t i = 0; i < units_.size(); ++i) seconds += unit(i).seconds, bytes += static_cast<double>(unit(i).bytes);
    return kMuchMore * seconds / bytes;
  }

  // The cheapest choice if a byte costs `per_byte` seconds.
  Choice choose(double per_byte) {
    for (size_t i = 0; i < units_.size(); ++i)
      cut_->set_capacity(keeps_[i], per_byte * static_cast<double>(unit(i).bytes));
    cut_->solve();
    Choice choice;
    for (size_t i = 0; i < units_.size(); ++i) {
      const bool is_needed = cut_->is_chosen(needed(i));
      const bool drops = unit(i).droppable && (!is_needed || cut_->is_chosen(recomputed(i)));
      choice.dropped.push_back(drops);
      if (!is_needed) continue;
      if (!drops) choice.bytes += unit(i).bytes;
      if (drops) choice.seconds += price(i);
    }
    return choice;
  }

  const RecomputeUnits& all_;
  Bytes room_;                 // for the values that may be kept or not
  std::vector<size_t> units_;  // those that may be live at the node or not
  std::vector<int> at_node_;   // per unit: its place in units_, or kNone
  std::optional<MinCut> cut_;
  std::vector<size_t> keeps_;  // per unit in units_: the edge that costs its bytes
};

// Of nodes so close to each other, only the one with the largest bound is looked at again.
constexpr int kApart = 8;

}  // namespace

std::vector<int> nodes_to_cut(const std::vector<double>& bounds, size_t most) {
  std::vector<int> order(bounds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return bounds[static_cast<size_t>(a)] > bounds[static_cast<size_t>(b)]; });
  std::vector<int> list;
  for (const int node : order) {
    if (list.size() == most || bounds[static_cast<size_t>(node)] <= 0) break;
    if (std::all_of(list.begin(), list.end(), [&](int other) { return std::abs(other - node) >= kApart; }))
      list.push_back(node);
  }
  return list;
}

CutAtNode cut_at(const RecomputeUnits& units, int node, Bytes cap, const RecomputeChoice* present) {
  return ChoiceAtNode(units, node, cap, present).run();
}

bool frees_at(const RecomputeUnit& unit, int node) {
  return unit.used_until < node && node < (unit.fused ? unit.gone_until : unit.before);
}

// Taking the cheapest bytes first, the last value in part, is the optimum of a fractional knapsack.
std::vector<double> least_seconds_per_node(const RecomputeUnits& all, Bytes cap) {
  std::vector<const RecomputeUnit*> cheapest_first;
  for (const RecomputeUnit& unit : all.units)
    if (unit.droppable && !unit.is_behind()) cheapest_first.push_back(&unit);
  const auto price = [](const RecomputeUnit& unit) { return price_of(unit) / static_cast<double>(unit.bytes); };
  std::stable_sort(cheapest_first.begin(), cheapest_first.end(),
                   [&](const RecomputeUnit* a, const RecomputeUnit* b) { return price(*a) < price(*b); });
  std::vector<double> bounds;
  for (size_t n = 0; n < all.live.size(); ++n) {
    Bytes too_many = all.live[n] - cap;
    double seconds = 0;
    for (const RecomputeUnit* unit : cheapest_first) {
      if (too_many <= 0) break;
      if (!frees_at(*unit, static_cast<int>(n))) continue;
      seconds += price(*unit) * static_cast<double>(std::min(too_many, unit->bytes));
      too_many -= unit->bytes;
    }
    if (too_many > 0) return {};
    bounds.push_back(seconds);
  }
  return bounds;
}

}  // namespace plimsoll::engine
