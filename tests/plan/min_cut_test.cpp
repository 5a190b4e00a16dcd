// The cut of small random graphs is compared with all cuts there are.
#include "plan/min_cut.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace plimsoll::engine::testing {
namespace {

TEST(MinCut, IsTheCheapestOfAllCuts) {
  std::mt19937 random(5);
  for (int graph = 0; graph < 300; ++graph) {
    const size_t nodes = 3 + random() % 7;
    MinCut cut(nodes);
    std::vector<std::tuple<size_t, size_t, double>> edges;
    for (size_t e = 0; e < 3 * nodes; ++e) {
      const size_t from = random() % nodes, to = random() % nodes;
      const bool never = random() % 8 == 0 && from != 0 && to != 1;
      const double capacity = never ? MinCut::kNever : static_cast<double>(random() % 1000) / 64;
      if (from == to || from == 1 || to == 0) continue;
      edges.emplace_back(from, to, capacity);
      cut.add(from, to, capacity);
    }
    const auto cost = [&](const auto& chosen) {
      double sum = 0;
      for (const auto& [from, to, capacity] : edges)
        if (chosen(from) && !chosen(to)) sum += capacity;
      return sum;
    };
    double best = INFINITY;
    for (uint32_t bits = 0; bits < 1U << (nodes - 2); ++bits)
      best = std::min(best, cost([&](size_t n) { return n == 0 || (n > 1 && (bits >> (n - 2) & 1) != 0); }));
    cut.solve();
    EXPECT_TRUE(cut.is_chosen(0));
    EXPECT_FALSE(cut.is_chosen(1));
    EXPECT_NEAR(cost([&](size_t n) { return cut.is_chosen(n); }), best, 1e-9) << graph;
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
