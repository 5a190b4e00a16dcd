#include "plan/pack_problem.h"

#include <numeric>

namespace plimsoll::engine {
namespace {

// Returns the section of each step. A section is a run of steps in which items begin, then end. In it the set of live
// items before the first end contains all the others.
std::vector<int> sections_of(const std::vector<PackItem>& items) {
  int steps = 0;
  for (const PackItem& item : items) steps = std::max(steps, item.last + 1);
  std::vector<bool> begins(static_cast<size_t>(steps), false), ends(static_cast<size_t>(steps), false);
  for (const PackItem& item : items) {
    if (item.bytes == 0) continue;
    begins[static_cast<size_t>(item.first)] = true;
    ends[static_cast<size_t>(item.last)] = true;
  }
  std::vector<int> sections;
  sections.reserve(begins.size());
  int section = 0;
  bool ended = false;
  for (size_t step = 0; step < begins.size(); ++step) {
    if (begins[step] && ended) ++section, ended = false;
    sections.push_back(section);
    ended = ended || ends[step];
  }
  return sections;
}

void finish(PackProblem& problem) {
  int sections = 0;
  for (const PackItem& item : problem.items) sections = std::max(sections, item.last + 1);
  problem.load.assign(static_cast<size_t>(sections) + 1, 0);
  for (const PackItem& item : problem.items) {
    problem.load[static_cast<size_t>(item.first)] += item.bytes;
    problem.load[static_cast<size_t>(item.last) + 1] -= item.bytes;
  }
  std::partial_sum(problem.load.begin(), problem.load.end(), problem.load.begin());
  problem.load.pop_back();
  problem.bound = *std::max_element(problem.load.begin(), problem.load.end());
  for (int item = 0; item < problem.size(); ++item) {
    if (item % PackProblem::kBlock == 0) problem.last_of_block.push_back(0);
    problem.last_of_block.back() = std::max(problem.last_of_block.back(), problem[item].last);
  }
}

}  // namespace

std::vector<PackProblem> split_into_problems(const std::vector<PackItem>& items) {
  const std::vector<int> sections = sections_of(items);
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(items.size()); ++i)
    if (items[static_cast<size_t>(i)].bytes > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return items[static_cast<size_t>(a)].first < items[static_cast<size_t>(b)].first;
  });
  std::vector<PackProblem> problems;
  int begin = 0, end = -1;  // sections of the current problem
  for (int index : order) {
    PackItem item = items[static_cast<size_t>(index)];
    item.first = sections[static_cast<size_t>(item.first)];
    item.last = sections[static_cast<size_t>(item.last)];
    if (item.first > end) {
      problems.emplace_back();
      begin = item.first;
    }
    end = std::max(end, item.last);
    item.first -= begin, item.last -= begin;
    problems.back().items.push_back(item);
    problems.back().origin.push_back(index);
  }
  for (PackProblem& problem : problems) finish(problem);
  return problems;
}

}  // namespace plimsoll::engine
