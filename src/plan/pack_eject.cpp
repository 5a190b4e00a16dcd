#include "plan/pack_eject.h"

#include <array>
#include <cmath>

namespace plimsoll::engine {
namespace {

struct Span {
  Bytes begin, end;
  int item;
};

// Adds the spans of all placed items that overlap this one in time, and sorts them by their begin.
void gather(const PackProblem& problem, const Offsets& offsets, int item, std::vector<Span>& spans) {
  spans.clear();
  problem.for_overlapping(item, [&](int other) {
    const Bytes offset = offsets[static_cast<size_t>(other)];
    if (offset >= 0) spans.push_back({offset, offset + problem[other].bytes, other});
  });
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
}

class Ejection {
 public:
  Ejection(const PackProblem& problem, Bytes height, int attempt, int64_t& work, const Offsets& offsets)
      : problem_(problem),
        height_(height),
        noise_(std::array{0.4, 0.1, 0.2, 0.6}[static_cast<size_t>(attempt) % 4]),
        work_(work),
        offsets_(offsets),
        state_(0x9E3779B97F4A7C15 + static_cast<uint64_t>(attempt)) {
    const auto count = static_cast<size_t>(problem.size());
    base_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const PackItem& item = problem.items[i];
      base_[i] = static_cast<double>(item.bytes) * std::sqrt(static_cast<double>(item.last - item.first + 1));
    }
    weight_ = base_;
    for (int i = 0; i < problem.size(); ++i)
      if (offsets_[static_cast<size_t>(i)] < 0 || offsets_[static_cast<size_t>(i)] + problem[i].bytes > height)
        take_out(i);
  }

  bool run() {
    while (!waiting_.empty()) {
      if (work_ <= 0) return false;
      place(next());
    }
    return true;
  }

  const Offsets& offsets() const { return offsets_; }

 private:
  void take_out(int item) {
    offsets_[static_cast<size_t>(item)] = -1;
    waiting_.push_back(item);
  }

  // Returns the waiting item that is the hardest to place.
  int next() {
    size_t best = 0;
    for (size_t k = 1; k < waiting_.size(); ++k)
      if (weight_[static_cast<size_t>(waiting_[k])] > weight_[static_cast<size_t>(waiting_[best])]) best = k;
    std::swap(waiting_[best], waiting_.back());
    const int item = waiting_.back();
    waiting_.pop_back();
    return item;
  }

  void place(int item) {
    gather(problem_, offsets_, item, spans_);
    work_ -= 16 + problem_.size() / 16 + 8 * static_cast<int64_t>(spans_.size());
    const Bytes bytes = problem_[item].bytes;
    Bytes free = 0;
    for (const Span& span : spans_) {
      if (span.begin >= free + bytes) break;
      free = std::max(free, span.end);
    }
    if (free + bytes > height_) {
      free = cheapest(bytes);
      weight_[static_cast<size_t>(item)] += base_[static_cast<size_t>(item)];
      for (const Span& span : spans_)
        if (span.begin < free + bytes && free < span.end) take_out(span.item);
    }
    offsets_[static_cast<size_t>(item)] = free;
  }

  // Returns the offset at which the items in the way weigh the least. Only offsets matter at which the item touches the
  // end or the begin of another one.
  Bytes cheapest(Bytes bytes) {
    ends_.clear();
    tries_ = {0, height_ - bytes};
    for (const Span& span : spans_) {
      ends_.emplace_back(span.end, weight_[static_cast<size_t>(span.item)]);
      if (span.end + bytes <= height_) tries_.push_back(span.end);
      if (span.begin >= bytes) tries_.push_back(span.begin - bytes);
    }
    std::sort(ends_.begin(), ends_.end());
    std::sort(tries_.begin(), tries_.end());
    double begun = 0, ended = 0, least = 0;  // the weights of items that begin below the end, that end below the begin
    size_t next_begin = 0, next_end = 0;
    Bytes best = -1;
    for (Bytes offset : tries_) {
      for (; next_begin < spans_.size() && spans_[next_begin].begin < offset + bytes; ++next_begin)
        begun += weight_[static_cast<size_t>(spans_[next_begin].item)];
      for (; next_end < ends_.size() && ends_[next_end].first <= offset; ++next_end) ended += ends_[next_end].second;
      const double weight = begun - ended;
      const double price = weight * (1 + noise_ * draw());
      if (best < 0 || price < least) best = offset, least = price;
    }
    return best;
  }

  // Returns a number in [0, 1). The generator has a fixed seed, so the same problem always gives the same packing.
  double draw() {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24);
  }

  const PackProblem& problem_;
  const Bytes height_;
  const double noise_;  // as a share of the price
  int64_t& work_;
  Offsets offsets_;
  std::vector<double> base_, weight_;
  std::vector<int> waiting_;
  std::vector<Span> spans_;
  std::vector<std::pair<Bytes, double>> ends_;
  std::vector<Bytes> tries_;
  uint64_t state_;
};

}  // namespace

Bytes first_fit(const PackProblem& problem, const std::vector<int>& order, Bytes give_up_at, Offsets& offsets) {
  struct Placed {
    Bytes offset, end;
    int first, last;
  };
  std::vector<Placed> placed;  // sorted by offset; all of it is looked through for each item
  placed.reserve(static_cast<size_t>(problem.size()));
  Bytes height = 0;
  for (int i = 0; i < problem.size(); ++i) {
    const Bytes offset = offsets[static_cast<size_t>(i)];
    if (offset < 0) continue;
    placed.push_back({offset, offset + problem[i].bytes, problem[i].first, problem[i].last});
    height = std::max(height, placed.back().end);
  }
  const auto below = [](const Placed& a, const Placed& b) { return a.offset < b.offset; };
  std::sort(placed.begin(), placed.end(), below);
  for (int index : order) {
    if (height >= give_up_at) break;
    if (offsets[static_cast<size_t>(index)] >= 0) continue;
    const PackItem& item = problem[index];
    Bytes offset = 0;
    for (const Placed& other : placed) {
      if (other.offset >= offset + item.bytes) break;
      if (other.first <= item.last && item.first <= other.last) offset = std::max(offset, other.end);
    }
    offsets[static_cast<size_t>(index)] = offset;
    const Placed here{offset, offset + item.bytes, item.first, item.last};
    height = std::max(height, here.end);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), here, below), here);
  }
  return height;
}

bool pack_by_ejection(const PackProblem& problem, Bytes height, int attempt, int64_t& work, Offsets& offsets) {
  if (height < problem.bound) return false;
  Ejection ejection(problem, height, attempt, work, offsets);
  if (!ejection.run()) return false;
  offsets = ejection.offsets();
  return true;
}

}  // namespace plimsoll::engine
