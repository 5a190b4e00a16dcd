// A packing problem in the form that the solvers of pack() read: time in sections, items sorted by their first section.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/pack.h"

namespace plimsoll::engine {

// Steps are merged into sections: two items share a section if and only if they share a step. `items` has no empty item
// and is sorted by the first section, so that the items that overlap a given one are found without a look at all pairs.
struct PackProblem {
  std::vector<PackItem> items;  // first and last are sections
  std::vector<int> origin;      // the place of each item in the list of the caller
  std::vector<Bytes> load;      // per section: the sum of the bytes live in it
  Bytes bound = 0;              // the largest load

  int size() const { return static_cast<int>(items.size()); }
  int sections() const { return static_cast<int>(load.size()); }
  const PackItem& operator[](int item) const { return items[static_cast<size_t>(item)]; }

  // Calls f(other) for every item that shares a section with this one. Items before it are looked through in blocks.
  template <typename F>
  void for_overlapping(int item, F f) const {
    const int first = items[static_cast<size_t>(item)].first, last = items[static_cast<size_t>(item)].last;
    for (int block = 0; block * kBlock < item; ++block) {
      if (last_of_block[static_cast<size_t>(block)] < first) continue;
      for (int other = block * kBlock, end = std::min(item, other + kBlock); other < end; ++other)
        if (items[static_cast<size_t>(other)].last >= first) f(other);
    }
    for (int other = item + 1; other < size() && items[static_cast<size_t>(other)].first <= last; ++other) f(other);
  }

  static constexpr int kBlock = 16;
  std::vector<int> last_of_block;  // per block of items: the largest last section
};

// Returns one problem for each stretch of time that no item crosses into another.
std::vector<PackProblem> split_into_problems(const std::vector<PackItem>& items);

}  // namespace plimsoll::engine
