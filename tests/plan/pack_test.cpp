// Tests packing on plain problems. Code in this file checks the results: it compares all pairs of items, and for small
// problems it finds the true optimum by trying every order (any compacted packing is first fit in the order of its
// offsets).
#include "plan/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

namespace plimsoll::engine {
namespace {

using Items = std::vector<PackItem>;

bool alive_together(const PackItem& a, const PackItem& b) {
  return !(a.last < b.first || b.last < a.first);
}

void expect_valid(const Items& items, const Packing& packing, const std::string& what) {
  ASSERT_EQ(packing.offsets.size(), items.size()) << what;
  Bytes top = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSERT_GE(packing.offsets[i], 0) << what;
    ASSERT_EQ(packing.offsets[i] % kAlignment, 0) << what;
    top = std::max(top, packing.offsets[i] + items[i].bytes);
    for (size_t k = 0; k < i; ++k) {
      if (!alive_together(items[i], items[k])) continue;
      const bool apart = packing.offsets[i] >= packing.offsets[k] + items[k].bytes ||
                         packing.offsets[k] >= packing.offsets[i] + items[i].bytes;
      ASSERT_TRUE(apart) << what << ": items " << k << " and " << i << " overlap";
    }
  }
  EXPECT_EQ(packing.height, top) << what;
}

// Computes the largest live set from its definition: the sum at each step.
Bytes live_set(const Items& items) {
  Bytes most = 0;
  for (const PackItem& at : items) {
    Bytes sum = 0;
    for (const PackItem& item : items)
      if (item.first <= at.first && at.first <= item.last) sum += item.bytes;
    most = std::max(most, sum);
  }
  return most;
}

Items draw(std::mt19937& random, int count, int steps, int longest, int units) {
  Items items;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(steps));
    const int last = std::min(steps - 1, first + static_cast<int>(random() % static_cast<unsigned>(longest)));
    items.push_back({kAlignment * (1 + static_cast<Bytes>(random() % static_cast<unsigned>(units))), first, last});
  }
  return items;
}

// Puts the items, in the given order, at the lowest free offset.
Bytes height_in_order(const Items& items, const std::vector<int>& order) {
  std::vector<Bytes> offsets(items.size(), -1);
  Bytes top = 0;
  for (int index : order) {
    const PackItem& item = items[static_cast<size_t>(index)];
    Bytes at = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t k = 0; k < items.size(); ++k) {
        if (offsets[k] < 0 || !alive_together(items[k], item)) continue;
        if (at < offsets[k] + items[k].bytes && offsets[k] < at + item.bytes)
          at = offsets[k] + items[k].bytes, moved = true;
      }
    }
    offsets[static_cast<size_t>(index)] = at;
    top = std::max(top, at + item.bytes);
  }
  return top;
}

Bytes optimum(const Items& items) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  Bytes least = INT64_MAX;
  const Bytes bound = live_set(items);
  do least = std::min(least, height_in_order(items, order));
  while (least > bound && std::next_permutation(order.begin(), order.end()));
  return least;
}

Bytes largest_first(const Items& items) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return items[static_cast<size_t>(a)].bytes > items[static_cast<size_t>(b)].bytes;
  });
  return height_in_order(items, order);
}

TEST(Pack, NothingTakesNothing) {
  const Packing packing = pack({});
  EXPECT_TRUE(packing.offsets.empty());
  EXPECT_EQ(packing.height, 0);
  EXPECT_EQ(largest_live_set({}), 0);
}

TEST(Pack, OneItemLiesAtTheBottom) {
  const Packing packing = pack({{192, 3, 9}});
  EXPECT_EQ(packing.offsets, std::vector<Bytes>{0});
  EXPECT_EQ(packing.height, 192);
}

TEST(Pack, ItemsThatNeverMeetShareOnePlace) {
  const Packing packing = pack({{640, 0, 0}, {640, 1, 1}, {640, 2, 5}, {64, 6, 6}});
  EXPECT_EQ(packing.offsets, (std::vector<Bytes>{0, 0, 0, 0}));
  EXPECT_EQ(packing.height, 640);
}

TEST(Pack, LiveSetIsTheLargestSumOfAStepAndItsStepIsNamed) {
  const Items items = {{64, 0, 2}, {128, 1, 4}, {256, 3, 3}, {64, 4, 5}};
  int step = -1;
  EXPECT_EQ(largest_live_set(items, &step), 384);
  EXPECT_EQ(step, 3);
}

TEST(Pack, RandomProblemsArePackedWithoutOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    const int count = 1 + static_cast<int>(random() % 60);
    const Items items = draw(random, count, 40, 1 + static_cast<int>(random() % 30), 1 << random() % 12);
    const Packing packing = pack(items, 200'000);
    expect_valid(items, packing, "round " + std::to_string(round));
    EXPECT_EQ(largest_live_set(items), live_set(items));
    EXPECT_GE(packing.height, live_set(items));
  }
}

TEST(Pack, TheSameItemsGiveTheSamePacking) {
  std::mt19937 random(2);
  for (int round = 0; round < 10; ++round) {
    const Items items = draw(random, 40, 30, 15, 500);
    const Packing a = pack(items), b = pack(items);
    EXPECT_EQ(a.offsets, b.offsets);
    EXPECT_EQ(a.height, b.height);
  }
}

// Tries seven items in every possible order, 5040 packings, and compares with the best.
TEST(Pack, SmallProblemsArePackedAsLowAsCanBe) {
  std::mt19937 random(3);
  int hard = 0;
  for (int round = 0; round < 120; ++round) {
    const Items items = draw(random, 7, 6, 4, 6);
    const Bytes best = optimum(items);
    const Packing packing = pack(items);
    expect_valid(items, packing, "round " + std::to_string(round));
    EXPECT_EQ(packing.height, best) << "round " << round;
    hard += best == live_set(items) && largest_first(items) > best;
  }
  EXPECT_GE(hard, 5);  // in some problems the largest-first order must not be good enough
}

// The same for thousands of smaller problems, whose items live long or briefly.
TEST(Pack, ThousandsOfTinyProblemsArePackedAsLowAsCanBe) {
  std::mt19937 random(5);
  int hard = 0;
  for (int round = 0; round < 3000; ++round) {
    const Items items = draw(random, 2 + round % 5, 3 + round % 4, 1 + round % 5, 1 + round % 9);
    const Bytes best = optimum(items);
    const Packing packing = pack(items);
    expect_valid(items, packing, "round " + std::to_string(round));
    ASSERT_EQ(packing.height, best) << "round " << round;
    hard += largest_first(items) > best;
  }
  EXPECT_GE(hard, 10);  // largest first must not be good enough
}

TEST(Pack, WithoutAnyWorkLeftThePackingIsStillValid) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    const Items items = draw(random, 200, 60, 30, 1000);
    for (const int64_t work : {0, 1, 1000}) expect_valid(items, pack(items, work), "work " + std::to_string(work));
  }
}

TEST(Pack, EmptyItemsTakeNoPlace) {
  const Packing packing = pack({{0, 0, 3}, {256, 1, 2}, {0, 2, 2}});
  EXPECT_EQ(packing.height, 256);
  EXPECT_EQ(packing.offsets, (std::vector<Bytes>{0, 0, 0}));
}

// Cuts a rectangle of steps and bytes into pieces at random: the pieces can be packed without any loss.
Items cut(std::mt19937& random, int first, int last, Bytes units, int depth) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  if (depth == 0 || (units == 1 && first == last)) return {{units * kAlignment, first, last}};
  Items items;
  const auto add = [&](const Items& more) { items.insert(items.end(), more.begin(), more.end()); };
  if (first < last && (units == 1 || random() % 2 == 0)) {
    const int middle = first + static_cast<int>(below(last - first));
    add(cut(random, first, middle, units, depth - 1));
    add(cut(random, middle + 1, last, units, depth - 1));
  } else {
    const Bytes lower = 1 + below(units - 1);
    add(cut(random, first, last, lower, depth - 1));
    add(cut(random, first, last, units - lower, depth - 1));
  }
  return items;
}

TEST(Pack, PiecesOfACutRectangleFillItAgain) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Items items = cut(random, 0, 49, 10000, 5);
    std::shuffle(items.begin(), items.end(), random);
    const Packing packing = pack(items);
    expect_valid(items, packing, "round " + std::to_string(round));
    EXPECT_EQ(packing.height, 10000 * kAlignment) << "round " << round;
  }
}

// A hard case that MiniMalloc has published (tests/plan/minimalloc/README.md). Steps and sizes are multiples of 1,024.
Items minimalloc_case(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/plan/minimalloc/" + name + ".1048576.csv");
  EXPECT_TRUE(file.is_open()) << name;
  std::string line;
  std::getline(file, line);
  Items items;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    int id = 0, lower = 0, upper = 0;
    Bytes bytes = 0;
    EXPECT_TRUE(fields >> id >> lower >> upper >> bytes) << name << ": " << line;
    items.push_back({bytes, lower / 1024, upper / 1024 - 1});
  }
  return items;
}

class MiniMalloc : public ::testing::TestWithParam<const char*> {};

TEST_P(MiniMalloc, HardCaseIsPackedAtItsCapacity) {
  constexpr Bytes kCapacity = 1048576;
  const Items items = minimalloc_case(GetParam());
  ASSERT_GE(items.size(), 100u);
  const Packing packing = pack(items, 2'000'000'000, kCapacity);
  expect_valid(items, packing, GetParam());
  EXPECT_LE(packing.height, kCapacity);
  EXPECT_GT(largest_first(items), kCapacity);  // it is hard: largest first is not enough
}

INSTANTIATE_TEST_SUITE_P(Published, MiniMalloc, ::testing::Values("A", "B"));

TEST(Pack, PutsWhatIsSmallBelowWhatIsLargeWhereThatIsBetter) {
  // The largest-first order puts the largest item at the bottom, which splits the free space in two. The optimum is the
  // live set.
  const std::vector<Items> problems = {
      {{2, 0, 1}, {3, 1, 2}, {1, 2, 4}, {4, 3, 4}, {1, 0, 0}, {3, 3, 3}},
      {{4, 0, 1}, {2, 1, 3}, {3, 2, 2}, {4, 3, 4}, {1, 2, 4}, {1, 0, 1}},
  };
  for (Items items : problems) {
    for (PackItem& item : items) item.bytes *= kAlignment;
    const Packing packing = pack(items);
    expect_valid(items, packing, "");
    EXPECT_EQ(packing.height, optimum(items));
  }
}

// Like a training step: forward values are live from i to 2n-i, with short temporaries in between.
TEST(Pack, NestedLifetimesOfATrainingStepCloseToTheLiveSet) {
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    Items items;
    const int depth = 30;
    for (int i = 0; i < depth; ++i) {
      const Bytes bytes = kAlignment * (1 + static_cast<Bytes>(random() % 4000));
      items.push_back({bytes, i, 2 * depth - i});
      items.push_back({kAlignment * (1 + static_cast<Bytes>(random() % 500)), i, i});
      items.push_back({bytes, 2 * depth - i, 2 * depth - i + 1});
      if (random() % 2 != 0)
        items.push_back({kAlignment * (1 + static_cast<Bytes>(random() % 2000)), 2 * depth - i, 2 * depth - i});
    }
    const Packing packing = pack(items);
    expect_valid(items, packing, "round " + std::to_string(round));
    EXPECT_LE(static_cast<double>(packing.height), 1.02 * static_cast<double>(live_set(items))) << "round " << round;
  }
}

}  // namespace
}  // namespace plimsoll::engine
