#include "plan/pack.h"

#include <algorithm>
#include <numeric>

namespace plimsoll::engine {
namespace {

using Order = std::vector<int>;

// A placed item, as one piece of memory: first_fit() looks through all of them for each item.
struct Placed {
  Bytes offset, end;
  int first, last;
};

// Puts each item in turn at the lowest offset at which it overlaps no item placed before.
Packing first_fit(const std::vector<PackItem>& items, const Order& order, Bytes give_up_above) {
  Packing packing{std::vector<Bytes>(items.size(), 0), 0};
  std::vector<Placed> placed;  // sorted by offset
  placed.reserve(items.size());
  for (int index : order) {
    const PackItem& item = items[static_cast<size_t>(index)];
    Bytes offset = 0;
    for (const Placed& other : placed) {
      if (other.offset >= offset + item.bytes) break;
      if (other.first <= item.last && item.first <= other.last) offset = std::max(offset, other.end);
    }
    packing.offsets[static_cast<size_t>(index)] = offset;
    packing.height = std::max(packing.height, offset + item.bytes);
    if (packing.height >= give_up_above) return packing;
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [](Bytes value, const Placed& other) { return value < other.offset; });
    placed.insert(at, {offset, offset + item.bytes, item.first, item.last});
  }
  return packing;
}

// Returns the sum of the bytes of all items above the bound.
Bytes overflow_of(const std::vector<PackItem>& items, const Packing& packing, Bytes bound) {
  Bytes sum = 0;
  for (size_t i = 0; i < items.size(); ++i) sum += std::max<Bytes>(0, packing.offsets[i] + items[i].bytes - bound);
  return sum;
}

template <typename Key>
Order sorted_by(const std::vector<PackItem>& items, Key key) {
  Order order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return key(items[static_cast<size_t>(a)]) > key(items[static_cast<size_t>(b)]);
  });
  return order;
}

}  // namespace

Bytes largest_live_set(const std::vector<PackItem>& items, int* step) {
  int steps = 0;
  for (const PackItem& item : items) steps = std::max(steps, item.last + 1);
  std::vector<Bytes> change(static_cast<size_t>(steps) + 1, 0);
  for (const PackItem& item : items) {
    change[static_cast<size_t>(item.first)] += item.bytes;
    change[static_cast<size_t>(item.last) + 1] -= item.bytes;
  }
  Bytes live = 0, most = 0;
  for (int s = 0; s < steps; ++s) {
    live += change[static_cast<size_t>(s)];
    if (live <= most) continue;
    most = live;
    if (step != nullptr) *step = s;
  }
  return most;
}

Packing pack(const std::vector<PackItem>& items, int64_t most_work) {
  int peak_step = 0;
  const Bytes bound = largest_live_set(items, &peak_step);
  const auto duration = [](const PackItem& item) { return static_cast<double>(item.last - item.first + 1); };
  const std::vector<Order> orders = {
      sorted_by(items, [](const PackItem& item) { return static_cast<double>(item.bytes); }),
      sorted_by(items, [&](const PackItem& item) { return static_cast<double>(item.bytes) * duration(item); }),
      sorted_by(items, [&](const PackItem& item) { return duration(item); }),
      sorted_by(items,
                [&](const PackItem& item) {
                  const bool at_peak = item.first <= peak_step && peak_step <= item.last;
                  return (at_peak ? 1e18 : 0) + static_cast<double>(item.bytes);
                }),
      // Items that outlive the peak go to the bottom, so that those that end at the peak leave one contiguous gap.
      sorted_by(items,
                [&](const PackItem& item) {
                  const bool at_peak = item.first <= peak_step && peak_step <= item.last;
                  return at_peak ? 1e18 * (item.last + 1) : static_cast<double>(item.bytes);
                }),
      sorted_by(items, [](const PackItem& item) { return -static_cast<double>(item.first); })};

  Packing best{{}, INT64_MAX};
  Order order;
  for (const Order& candidate : orders) {
    Packing packing = first_fit(items, candidate, best.height);
    if (packing.height >= best.height) continue;
    best = std::move(packing);
    order = candidate;
    if (best.height == bound) return best;
  }

  // Local search on the order: moves an item that reaches above the bound to an earlier place. Moves without any effect
  // are also accepted, to get across plateaus. The random generator has a fixed seed, so the same items give the same
  // packing.
  const auto rounds = static_cast<int>(std::clamp<double>(
      static_cast<double>(most_work) / (static_cast<double>(items.size()) * static_cast<double>(items.size())), 20,
      4000));
  Bytes overflow = overflow_of(items, best, bound);
  uint64_t state = 0x9E3779B97F4A7C15;
  const auto draw = [&](size_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int round = 0; round < rounds && best.height > bound; ++round) {
    std::vector<size_t> high;  // positions in the order
    for (size_t place = 1; place < order.size(); ++place) {
      const auto index = static_cast<size_t>(order[place]);
      if (best.offsets[index] + items[index].bytes > bound) high.push_back(place);
    }
    if (high.empty()) high.push_back(order.size() - 1);
    // Mostly moves an item that is too high; now and then any item, because another one may be in the way.
    const size_t place = draw(4) != 0 ? high[draw(high.size())] : 1 + draw(order.size() - 1);
    Order trial = order;
    const size_t to = draw(place);
    std::rotate(trial.begin() + static_cast<long>(to), trial.begin() + static_cast<long>(place),
                trial.begin() + static_cast<long>(place) + 1);
    Packing packing = first_fit(items, trial, best.height + 1);
    if (packing.height > best.height) continue;
    const Bytes trial_overflow = overflow_of(items, packing, bound);
    if (packing.height == best.height && trial_overflow > overflow) continue;
    best = std::move(packing);
    overflow = trial_overflow;
    order = std::move(trial);
  }
  return best;
}

}  // namespace plimsoll::engine
