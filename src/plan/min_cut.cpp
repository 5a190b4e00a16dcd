#include "plan/min_cut.h"

#include <algorithm>

namespace plimsoll::engine {

size_t MinCut::add(size_t from, size_t to, double capacity) {
  edges_.push_back({to, first_[from], capacity, 0});
  first_[from] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0, 0});
  first_[to] = static_cast<int>(edges_.size()) - 1;
  return edges_.size() / 2 - 1;
}

bool MinCut::find_depths() {
  std::fill(depth_.begin(), depth_.end(), -1);
  std::vector<size_t> queue = {0};
  depth_[0] = 0;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (int e = first_[queue[i]]; e != kEnd; e = edges_[static_cast<size_t>(e)].next) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.left <= least_ || depth_[edge.to] >= 0) continue;
      depth_[edge.to] = depth_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  }
  return depth_[1] >= 0;
}

// Recursive: a path has at most as many nodes as there are levels, which is the longest chain of values.
double MinCut::push(size_t node, double most) {
  if (node == 1) return most;
  double pushed = 0;
  for (int& e = next_[node]; e != kEnd; e = edges_[static_cast<size_t>(e)].next) {
    Edge& edge = edges_[static_cast<size_t>(e)];
    if (edge.left <= least_ || depth_[edge.to] != depth_[node] + 1) continue;
    const double through = push(edge.to, std::min(most - pushed, edge.left));
    edge.left -= through;
    edges_[static_cast<size_t>(e) ^ 1].left += through;
    pushed += through;
    if (most - pushed <= least_) return pushed;
  }
  return pushed;
}

void MinCut::solve() {
  double largest = 0;
  for (Edge& edge : edges_) {
    edge.left = edge.capacity;
    if (edge.capacity < kNever) largest = std::max(largest, edge.capacity);
  }
  least_ = 1e-12 * largest;
  while (find_depths()) {
    next_ = first_;
    push(0, kNever);
  }
}

}  // namespace plimsoll::engine
