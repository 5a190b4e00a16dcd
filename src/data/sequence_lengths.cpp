#include "data/sequence_lengths.h"

#include <algorithm>
#include <map>

#include "data/checks.h"

namespace plimsoll::engine {
namespace {

constexpr Bytes kPiece = kMiB;
constexpr int64_t kFineness = 8, kLeast = 16;  // of limits that are chosen
constexpr size_t kMostCandidates = 1024;

template <typename T>
bool all_equal(const std::byte* at, int64_t count, double padding) {
  const T* const values = reinterpret_cast<const T*>(at);
  return std::all_of(values, values + count, [&](T value) { return static_cast<double>(value) == padding; });
}

bool is_padding(DType dtype, const std::byte* at, int64_t count, double padding) {
  switch (dtype) {
    case DType::kFloat32:
      return all_equal<float>(at, count, padding);
    case DType::kInt32:
      return all_equal<int32_t>(at, count, padding);
    case DType::kInt64:
      return all_equal<int64_t>(at, count, padding);
    default:
      for (int64_t i = 0; i < count; ++i)
        if (element(dtype, at, i) != padding) return false;
      return true;
  }
}

int64_t length_of(const TensorType& type, const std::byte* row, double padding) {
  const int64_t steps = type.shape[0], each = type.shape.elements() / steps;
  int64_t length = steps;
  while (length > 1 && is_padding(type.dtype, row + (length - 1) * each * size_of(type.dtype), each, padding)) --length;
  return length;
}

int64_t windows_of(int64_t samples, int64_t window) {
  return samples / window + (samples % window > 0 ? 1 : 0);
}

}  // namespace

Result<std::vector<int32_t>> sequence_lengths(const DataSet& data, std::span<const size_t> columns, double padding,
                                              int64_t begin, int64_t end) {
  std::vector<int32_t> lengths(static_cast<size_t>(end - begin), 1);
  std::vector<std::byte> piece;
  for (const size_t index : columns) {
    const Column& column = data.inputs[index];
    const int64_t rows = std::clamp<int64_t>(kPiece / column.type.bytes(), 1, end - begin);
    piece.resize(static_cast<size_t>(rows * column.type.bytes()));
    for (int64_t first = begin; first < end; first += rows) {
      const int64_t count = std::min(rows, end - first);
      PLIMSOLL_TRY(column.read(first, count, piece.data()));
      for (int64_t i = 0; i < count; ++i) {
        int32_t& length = lengths[static_cast<size_t>(first - begin + i)];
        length = std::max(
            length, static_cast<int32_t>(length_of(column.type, piece.data() + i * column.type.bytes(), padding)));
      }
    }
  }
  return lengths;
}

// Dynamic programming over the candidates: cost[j] is the number of steps that the samples up to candidate j take with
// the limits chosen so far, the last of which is j.
std::vector<int64_t> choose_limits(std::span<const int32_t> lengths, int64_t longest, size_t most) {
  const int64_t coarse = longest / static_cast<int64_t>(kMostCandidates) + 1;
  const int64_t fineness = kFineness * ((coarse + kFineness - 1) / kFineness);
  std::map<int64_t, int64_t> samples;  // by limit
  samples[longest] = 0;
  for (const int64_t length : lengths)
    ++samples[std::min(longest, std::max(kLeast, (length + fineness - 1) / fineness * fineness))];
  std::vector<int64_t> limits, until;  // until: the number of samples up to this limit
  for (const auto& [limit, count] : samples) {
    limits.push_back(limit);
    until.push_back(count + (until.empty() ? 0 : until.back()));
  }
  const size_t n = limits.size();
  std::vector<int64_t> cost(n);
  for (size_t j = 0; j < n; ++j) cost[j] = until[j] * limits[j];
  std::vector<std::vector<size_t>> before;  // before[k][j]: the limit before j, or j if there is none
  for (size_t k = 1; k < std::min(most, n); ++k) {
    std::vector<int64_t> next = cost;
    before.emplace_back(n);
    for (size_t j = 0; j < n; ++j) {
      before.back()[j] = j;
      for (size_t i = 0; i < j; ++i) {
        const int64_t with = cost[i] + (until[j] - until[i]) * limits[j];
        if (with >= next[j]) continue;
        next[j] = with;
        before.back()[j] = i;
      }
    }
    cost = std::move(next);
  }
  std::vector<int64_t> chosen = {longest};
  size_t at = n - 1;
  for (size_t k = before.size(); k-- > 0;) {
    if (before[k][at] == at) continue;
    at = before[k][at];
    chosen.push_back(limits[at]);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

LengthGroups::LengthGroups(std::span<const int32_t> lengths, std::vector<int64_t> limits, int64_t begin, int64_t window)
    : window_(window) {
  std::sort(limits.begin(), limits.end());
  std::vector<size_t> group_of(lengths.size());
  for (const int64_t limit : limits) groups_.push_back({limit, 0, 0});
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto at = std::lower_bound(limits.begin(), limits.end() - 1, static_cast<int64_t>(lengths[i]));
    // The longest group comes first.
    group_of[i] = limits.size() - 1 - static_cast<size_t>(at - limits.begin());
  }
  std::reverse(groups_.begin(), groups_.end());
  for (const size_t group : group_of) ++groups_[group].samples;
  int64_t first = 0;
  for (LengthGroup& group : groups_) {
    group.first = first;
    first += group.samples;
    windows_ += windows_of(group.samples, window_);
  }
  members_.resize(lengths.size());
  std::vector<int64_t> next;
  for (const LengthGroup& group : groups_) next.push_back(group.first);
  for (size_t i = 0; i < lengths.size(); ++i)
    members_[static_cast<size_t>(next[group_of[i]]++)] = begin + static_cast<int64_t>(i);
}

void LengthGroups::order(int64_t epoch, bool shuffle, uint64_t seed) {
  of_windows_.reset();
  of_members_.clear();
  if (!shuffle) return;
  of_windows_.emplace(windows_, seed, epoch);
  for (size_t g = 0; g < groups_.size(); ++g)
    of_members_.emplace_back(std::max<int64_t>(groups_[g].samples, 1), seed + 1 + g, epoch);
}

LengthGroups::Place LengthGroups::place(int64_t window) const {
  if (of_windows_) window = (*of_windows_)(window);
  size_t group = 0;
  for (; group + 1 < groups_.size(); ++group) {
    const int64_t here = windows_of(groups_[group].samples, window_);
    if (window < here) break;
    window -= here;
  }
  const int64_t first = window * window_;
  return {group, first, std::min(window_, groups_[group].samples - first)};
}

int64_t LengthGroups::sample(size_t group, int64_t position) const {
  if (!of_members_.empty()) position = of_members_[group](position);
  return members_[static_cast<size_t>(groups_[group].first + position)];
}

}  // namespace plimsoll::engine
