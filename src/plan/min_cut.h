// The cheapest cut between a source and a sink, by Dinic's algorithm. Capacities are real numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace plimsoll::engine {

class MinCut {
 public:
  static constexpr double kNever = 1e30;  // an edge that no cut crosses

  // Nodes 0 and 1 are the source and the sink.
  explicit MinCut(size_t nodes) : first_(nodes, kEnd), depth_(nodes), next_(nodes) {}

  // Adds an edge that costs `capacity` if `from` is on the source's side and `to` is not. Returns its number.
  size_t add(size_t from, size_t to, double capacity);
  void set_capacity(size_t edge, double capacity) { edges_[2 * edge].capacity = capacity; }

  void solve();
  // After solve(): whether the node is on the source's side.
  bool is_chosen(size_t node) const { return depth_[node] >= 0; }

 private:
  static constexpr int kEnd = -1;
  struct Edge {
    size_t to;
    int next;  // the next edge of the same node
    double capacity, left;
  };

  bool find_depths();
  double push(size_t node, double most);

  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<int> first_, depth_, next_;
  double least_ = 0;  // what is left of an edge counts as nothing below this
};

}  // namespace plimsoll::engine
