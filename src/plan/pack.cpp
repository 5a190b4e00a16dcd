#include "plan/pack.h"

#include <numeric>

#include "plan/pack_canonical.h"
#include "plan/pack_eject.h"

namespace plimsoll::engine {
namespace {

using Order = std::vector<int>;

template <typename Key>
Order sorted_by(const PackProblem& problem, Key key) {
  Order order(static_cast<size_t>(problem.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(problem[a]) > key(problem[b]); });
  return order;
}

double duration(const PackItem& item) {
  return static_cast<double>(item.last - item.first + 1);
}
double size(const PackItem& item) {
  return static_cast<double>(item.bytes);
}
double area(const PackItem& item) {
  return size(item) * duration(item);
}

std::vector<Order> orders_of(const PackProblem& problem) {
  const auto peak = static_cast<int>(std::max_element(problem.load.begin(), problem.load.end()) - problem.load.begin());
  const auto at_peak = [&](const PackItem& item) { return item.first <= peak && peak <= item.last; };
  return {sorted_by(problem, area), sorted_by(problem, size), sorted_by(problem, duration),
          sorted_by(problem, [&](const PackItem& item) { return (at_peak(item) ? 1e18 : 0) + size(item); }),
          // Items that outlive the peak go to the bottom, so that those that end at the peak leave one contiguous gap.
          sorted_by(problem, [&](const PackItem& item) { return at_peak(item) ? 1e18 * (item.last + 1) : size(item); }),
          sorted_by(problem, [](const PackItem& item) { return -static_cast<double>(item.first); })};
}

Bytes top_of(const PackProblem& problem, const Offsets& offsets) {
  Bytes top = 0;
  for (int i = 0; i < problem.size(); ++i) top = std::max(top, offsets[static_cast<size_t>(i)] + problem[i].bytes);
  return top;
}

// Packs one problem as low as the work allows, and no lower than `enough`.
class Packer {
 public:
  Packer(const PackProblem& problem, Bytes enough, int64_t work)
      : problem_(problem), enough_(std::max(enough, problem.bound)), work_(work), orders_(orders_of(problem)) {}

  Bytes run(Offsets& offsets) {
    const int64_t all = work_;
    by_first_fit();
    if (problem_.size() <= kMostForSearch && height_ > enough_) search(all / 8);
    if (height_ > enough_) lower_step_by_step(all);
    if (problem_.size() <= kMostForSearch && height_ > enough_) search(work_);
    offsets = best_;
    return height_;
  }

 private:
  static constexpr int kMostForSearch = 500;
  static constexpr Bytes kFinest = 1000;  // differences of less than 1/1000 of the height are not searched for

  bool take(Bytes height, const Offsets& offsets) {
    if (height >= height_) return false;
    height_ = height;
    best_ = offsets;
    return true;
  }

  // Lowers each item as far as those below it let it, then takes the packing.
  bool take_lowered(const Offsets& offsets) {
    Order order(offsets.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return offsets[static_cast<size_t>(a)] < offsets[static_cast<size_t>(b)]; });
    Offsets lowered(offsets.size(), -1);
    const Bytes height = first_fit(problem_, order, INT64_MAX, lowered);
    return take(height, lowered);
  }

  void by_first_fit() {
    for (const Order& order : orders_) {
      Offsets offsets(static_cast<size_t>(problem_.size()), -1);
      take(first_fit(problem_, order, height_, offsets), offsets);
      if (height_ <= enough_) return;
    }
  }

  // Halves the distance from the least height, or from the last height at which nothing was found, while there is work
  // left: what can be packed is mostly packed soon, and a height that cannot costs a whole share.
  void lower_step_by_step(int64_t all) {
    Bytes failed = enough_ - 1;
    while (work_ > 0 && height_ > enough_ && height_ - failed > enough_ / kFinest) {
      const Bytes gap = height_ - failed;
      const bool near = failed < enough_ && gap < 4 * (enough_ / kFinest);
      const Bytes height = near ? enough_ : failed + gap / 2;
      if (!try_height(height, all / 6)) failed = height;
    }
  }

  // Makes several attempts: when one finds a packing it mostly does so soon.
  bool try_height(Bytes height, int64_t share) {
    constexpr int kAttempts = 4;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      int64_t left = std::min(share / kAttempts, work_);
      work_ -= left;
      Offsets offsets(static_cast<size_t>(problem_.size()), -1);
      const bool found = place_by_size(height, attempt, left, offsets);
      work_ += std::max<int64_t>(0, left);
      if (found) return take_lowered(offsets);
      if (work_ <= 0) return false;
    }
    if (problem_.size() > kMostForSearch) return false;
    int64_t left = std::min(share / 2, work_);
    work_ -= left;
    const SearchEnd end = search_at(height, left);
    work_ += std::max<int64_t>(0, left);
    return end == SearchEnd::kFound;
  }

  // Places the largest items alone, then smaller ones between them, level by level: a large item that has to make room
  // for a small one moves many others. The smallest items lie above all others, where they cost a quarter of what the
  // height exceeds the largest live set by.
  bool place_by_size(Bytes height, int attempt, int64_t& work, Offsets& offsets) const {
    const Bytes tiny = largest_tiny((height - problem_.bound) / 4);
    Bytes strip = 0;
    if (tiny > 0) {
      Order small;
      for (int i : orders_[0])
        if (problem_[i].bytes <= tiny) small.push_back(i);
      strip = first_fit(problem_, small, INT64_MAX, offsets);
      if (height - strip < problem_.bound) strip = 0;
    }
    const Bytes floor = height - strip;
    for (int i : orders_[0]) {
      Bytes& offset = offsets[static_cast<size_t>(i)];
      if (strip == 0) offset = -1;
      if (offset >= 0) offset += floor;
    }
    for (Bytes least = height / 32;; least /= 8) {
      if (!place_items(std::max(least, strip > 0 ? tiny + 1 : 0), floor, attempt, work, offsets)) return false;
      if (least == 0 || (strip > 0 && least <= tiny)) return true;
    }
  }

  // Returns the largest size such that all items up to it need at most `room` bytes at any time; 0 if there is none.
  Bytes largest_tiny(Bytes room) const {
    Bytes tiny = 0;
    for (Bytes size = kAlignment; size <= room; size *= 2) {
      std::vector<PackItem> items;
      for (const PackItem& item : problem_.items)
        if (item.bytes <= size) items.push_back(item);
      if (largest_live_set(items) > room) break;
      tiny = size;
    }
    return tiny;
  }

  // Places all items of at least `least` bytes under the height. Those that have an offset already may get another one.
  bool place_items(Bytes least, Bytes height, int attempt, int64_t& work, Offsets& offsets) const {
    std::vector<PackItem> items;
    Order origin;
    for (int i = 0; i < problem_.size(); ++i)
      if (problem_[i].bytes >= least) items.push_back(problem_[i]), origin.push_back(i);
    for (const PackProblem& part : split_into_problems(items)) {
      const auto at = [&](size_t i) -> Bytes& {
        return offsets[static_cast<size_t>(origin[static_cast<size_t>(part.origin[i])])];
      };
      Offsets part_offsets;
      for (size_t i = 0; i < part.items.size(); ++i) part_offsets.push_back(at(i));
      if (first_fit(part, sorted_by(part, area), INT64_MAX, part_offsets) > height &&
          !pack_by_ejection(part, height, attempt, work, part_offsets))
        return false;
      for (size_t i = 0; i < part_offsets.size(); ++i) at(i) = part_offsets[i];
    }
    return true;
  }

  // Looks for a packing of the least height, then for any that is lower than the best one, until there is none.
  void search(int64_t share) {
    int64_t left = std::min(share, work_);
    work_ -= left;
    SearchEnd end = search_at(enough_, left);
    while (end == SearchEnd::kNone && height_ > enough_) {
      end = search_at(height_ - 1, left);
      if (end == SearchEnd::kNone) enough_ = height_;
      if (end == SearchEnd::kFound && height_ > enough_) end = SearchEnd::kNone;
    }
    work_ += std::max<int64_t>(0, left);
  }

  SearchEnd search_at(Bytes height, int64_t& work) {
    for (size_t k = 0; k < 3; ++k) {
      Order rank(orders_[k].size());
      for (size_t place = 0; place < rank.size(); ++place)
        rank[static_cast<size_t>(orders_[k][place])] = static_cast<int>(place);
      int64_t share = k == 0 ? work / 2 : work / static_cast<int64_t>(3 - k);
      work -= share;
      Offsets offsets;
      const SearchEnd end = pack_canonically(problem_, height, rank, share, offsets);
      work += std::max<int64_t>(0, share);
      if (end == SearchEnd::kFound) take(top_of(problem_, offsets), offsets);
      if (end != SearchEnd::kGaveUp) return end;
    }
    return SearchEnd::kGaveUp;
  }

  const PackProblem& problem_;
  Bytes enough_;
  int64_t work_;
  const std::vector<Order> orders_;
  Bytes height_ = INT64_MAX;
  Offsets best_;
};

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

Packing pack(const std::vector<PackItem>& items, int64_t most_work, Bytes enough) {
  std::vector<PackProblem> problems = split_into_problems(items);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const PackProblem& a, const PackProblem& b) { return a.bound > b.bound; });
  Packing packing{std::vector<Bytes>(items.size(), 0), 0};
  for (const PackProblem& problem : problems) {
    Offsets offsets;
    packing.height =
        std::max(packing.height, Packer(problem, std::max(enough, packing.height), most_work).run(offsets));
    for (size_t i = 0; i < offsets.size(); ++i) packing.offsets[static_cast<size_t>(problem.origin[i])] = offsets[i];
  }
  return packing;
}

}  // namespace plimsoll::engine
