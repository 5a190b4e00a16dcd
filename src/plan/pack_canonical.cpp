// Branch and bound over canonical packings, after M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", ASPLOS 2023.
//
// If there is a packing of some height at all, there is one whose offsets have the least sum. In it no item can be
// lowered, so each one lies at 0 or upon another. Items are placed in the order of their offsets, so an item lies upon
// those placed before it: its offset is its *base*, the highest end of placed items that it overlaps. A packing is thus
// an order, and the search goes through orders. It leaves one where
//   - an item that is placed lies below the one placed before it (that order is another one),
//   - an item that waits would have fitted below the one just placed (it could be lowered),
//   - a section cannot hold what waits for it above the lowest place that is left there,
//   - the same items have waited with the same bases before, and no order of them was found.
// When no waiting item of one stretch of time overlaps one of another, the stretches are solved one by one.
#include "plan/pack_canonical.h"

#include <numeric>

namespace plimsoll::engine {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27, x *= 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// What was placed last: the next item in the order must come after it.
struct Last {
  Bytes offset;
  int rank;
  bool operator<=(const Last& other) const {
    return offset != other.offset ? offset < other.offset : rank <= other.rank;
  }
};

class CanonicalSearch {
 public:
  CanonicalSearch(const PackProblem& problem, Bytes height, const std::vector<int>& rank, int64_t& work)
      : problem_(problem), height_(height), rank_(rank), work_(work), failures_(kFailures) {
    const auto count = static_cast<size_t>(problem.size());
    base_.assign(count, 0);
    offsets_.assign(count, -1);
    floor_.resize(static_cast<size_t>(problem.sections()));
    waiting_.resize(static_cast<size_t>(problem.sections()) + 1);
    next_.resize(static_cast<size_t>(problem.sections()) + 1);
  }

  SearchEnd run() {
    std::vector<int> all(static_cast<size_t>(problem_.size()));
    std::iota(all.begin(), all.end(), 0);
    const bool found = solve(all, {0, -1});
    return found ? SearchEnd::kFound : work_ <= 0 ? SearchEnd::kGaveUp : SearchEnd::kNone;
  }

  const Offsets& offsets() const { return offsets_; }

 private:
  static constexpr size_t kFailures = 1 << 15;
  struct Failure {
    uint64_t state = 0;
    Last last{};
  };

  // Places all of `items`, which are sorted by their first section and lie in one stretch of time.
  bool solve(const std::vector<int>& items, Last last) {
    work_ -= 16 + 8 * static_cast<int64_t>(items.size());
    if (work_ <= 0) return false;
    if (items.size() == 1) return solve_one(items[0], last);
    uint64_t state = 0;
    Bytes least_end = INT64_MAX;  // an item placed here or above could be lowered, or another one could
    for (int item : items) {
      const Bytes base = base_[static_cast<size_t>(item)];
      if (base + problem_[item].bytes > height_) return false;
      least_end = std::min(least_end, base + problem_[item].bytes);
      state += mix(static_cast<uint64_t>(base) * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(item) + 1);
    }
    if (least_end <= last.offset) return false;
    Failure& failure = failures_[state % kFailures];
    if (failure.state == state && failure.last <= last) return false;
    std::vector<int> order = items;
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const Bytes base_a = base_[static_cast<size_t>(a)], base_b = base_[static_cast<size_t>(b)];
      return base_a != base_b ? base_a < base_b : rank_[static_cast<size_t>(a)] < rank_[static_cast<size_t>(b)];
    });
    if (!sections_hold(items, order, last.offset)) return false;
    for (int item : order) {
      const Last placed{base_[static_cast<size_t>(item)], rank_[static_cast<size_t>(item)]};
      if (placed.offset >= least_end) break;
      if (placed <= last) continue;
      if (try_item(items, item, placed)) return true;
      if (work_ <= 0) return false;
    }
    failure = {state, last};
    return false;
  }

  bool solve_one(int item, Last last) {
    const Bytes base = base_[static_cast<size_t>(item)];
    if (base + problem_[item].bytes > height_ || base < last.offset) return false;
    offsets_[static_cast<size_t>(item)] = base;
    return true;
  }

  // Compares what waits for each section with the room above the lowest place that is left in it. `order` is sorted by
  // base: the first item that covers a section has the lowest one.
  bool sections_hold(const std::vector<int>& items, const std::vector<int>& order, Bytes lowest) {
    const int begin = problem_[items.front()].first;
    int end = begin;
    for (int item : items) end = std::max(end, problem_[item].last + 1);
    for (int s = begin; s <= end; ++s) waiting_[static_cast<size_t>(s)] = 0, next_[static_cast<size_t>(s)] = s;
    for (int item : order) {
      const PackItem& it = problem_[item];
      waiting_[static_cast<size_t>(it.first)] += it.bytes;
      waiting_[static_cast<size_t>(it.last) + 1] -= it.bytes;
      const Bytes base = std::max(lowest, base_[static_cast<size_t>(item)]);
      for (int s = open_from(it.first); s <= it.last; s = open_from(s)) {
        floor_[static_cast<size_t>(s)] = base;
        next_[static_cast<size_t>(s)] = s + 1;
      }
    }
    work_ -= end - begin;
    Bytes waiting = 0;
    for (int s = begin; s < end; ++s) {
      waiting += waiting_[static_cast<size_t>(s)];
      if (waiting > 0 && floor_[static_cast<size_t>(s)] + waiting > height_) return false;
    }
    return true;
  }

  // Returns the first section from `s` on whose floor is not known yet.
  int open_from(int s) {
    int root = s;
    while (next_[static_cast<size_t>(root)] != root) root = next_[static_cast<size_t>(root)];
    while (next_[static_cast<size_t>(s)] != root && s != root) s = std::exchange(next_[static_cast<size_t>(s)], root);
    return root;
  }

  bool try_item(const std::vector<int>& items, int item, Last placed) {
    const PackItem& it = problem_[item];
    const Bytes top = placed.offset + it.bytes;
    std::vector<std::pair<int, Bytes>> raised;
    std::vector<std::vector<int>> stretches;
    int end = -1;
    for (int other : items) {
      if (other == item) continue;
      const PackItem& o = problem_[other];
      if (o.first > end) stretches.emplace_back();
      end = std::max(end, o.last);
      stretches.back().push_back(other);
      Bytes& base = base_[static_cast<size_t>(other)];
      if (o.first <= it.last && it.first <= o.last && base < top) {
        raised.emplace_back(other, base);
        base = top;
      }
    }
    offsets_[static_cast<size_t>(item)] = placed.offset;
    // The smallest stretch is the soonest to fail.
    std::sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const bool all = std::all_of(stretches.begin(), stretches.end(),
                                 [&](const std::vector<int>& stretch) { return solve(stretch, placed); });
    if (!all)
      for (const auto& [other, base] : raised) base_[static_cast<size_t>(other)] = base;
    return all;
  }

  const PackProblem& problem_;
  const Bytes height_;
  const std::vector<int>& rank_;
  int64_t& work_;
  Offsets offsets_;
  std::vector<Bytes> base_;     // per item: the highest end of placed items that it overlaps
  std::vector<Bytes> floor_;    // per section, in sections_hold
  std::vector<Bytes> waiting_;  // likewise
  std::vector<int> next_;       // likewise
  std::vector<Failure> failures_;
};

}  // namespace

SearchEnd pack_canonically(const PackProblem& problem, Bytes height, const std::vector<int>& rank, int64_t& work,
                           Offsets& offsets) {
  if (height < problem.bound) return SearchEnd::kNone;
  CanonicalSearch search(problem, height, rank, work);
  const SearchEnd end = search.run();
  if (end == SearchEnd::kFound) offsets = search.offsets();
  return end;
}

}  // namespace plimsoll::engine
