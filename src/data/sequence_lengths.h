// The lengths of sequences that are stored in arrays of one size, with padding at their ends, and groups of sequences
// of similar length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/order.h"

namespace plimsoll::engine {

// Returns the length of each sample from `begin` to `end`: the number of steps up to the last one that is not padding,
// the largest over the inputs `columns`, and at least 1. A step is padding if all its numbers equal `padding`. Reads
// the arrays once, in pieces.
Result<std::vector<int32_t>> sequence_lengths(const DataSet& data, std::span<const size_t> columns, double padding,
                                              int64_t begin, int64_t end);

// Returns up to `most` limits for these lengths, the last of which is `longest`: those that leave the fewest steps of
// padding. The others are multiples of 8 from 16 on.
std::vector<int64_t> choose_limits(std::span<const int32_t> lengths, int64_t longest, size_t most);

// Samples in groups by length. A window has samples of one group only.
struct LengthGroup {
  int64_t steps = 0;    // its samples are at most this long
  int64_t first = 0;    // of LengthGroups::members
  int64_t samples = 0;  // may be 0
};

class LengthGroups {
 public:
  // `limits`: distinct; the largest is the length of the arrays. Lengths count from sample `begin` on.
  LengthGroups(std::span<const int32_t> lengths, std::vector<int64_t> limits, int64_t begin, int64_t window);

  const std::vector<LengthGroup>& groups() const { return groups_; }  // the longest first
  int64_t windows() const { return windows_; }                        // per epoch
  Bytes bytes() const { return static_cast<Bytes>(members_.size() * sizeof(members_[0])); }

  // A window of an epoch: samples first .. first+count-1 of a group in the order of the epoch.
  struct Place {
    size_t group = 0;
    int64_t first = 0, count = 0;
  };
  // Orders an epoch: groups one after the other, the longest first, in the order of the data; with `shuffle`, windows
  // and the samples of each group are shuffled. Each sample occurs once. Any epoch can be ordered first.
  void order(int64_t epoch, bool shuffle, uint64_t seed);
  Place place(int64_t window) const;
  // Returns the sample at a position of a group.
  int64_t sample(size_t group, int64_t position) const;

 private:
  int64_t window_;
  int64_t windows_ = 0;
  std::vector<LengthGroup> groups_;
  std::vector<int64_t> members_;
  std::optional<SampleOrder> of_windows_;
  std::vector<SampleOrder> of_members_;  // one per group; empty without shuffling
};

}  // namespace plimsoll::engine
