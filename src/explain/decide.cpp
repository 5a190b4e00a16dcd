#include "explain/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace plimsoll::engine::explain {
namespace {

struct CauseWords {
  std::string_view name, title;
};

constexpr std::array<CauseWords, 14> kCauses = {{
    {"none", "no out-of-memory failure in this log"},
    {"not-enough", "out of memory, but there is not enough in this log to say why"},
    {"true-excess", "the training needs more memory than the device has"},
    {"fragmentation", "enough memory is free, but not in one piece"},
    {"other-process", "another process holds the memory"},
    {"data-on-device", "a whole data set was copied to the device"},
    {"impossible-tensor", "one tensor is larger than the device"},
    {"validation", "the split into training and validation data was made on the device"},
    {"host-memory", "the machine's memory ran out"},
    {"container-limit", "the memory limit of the container was reached"},
    {"job-limit", "the memory limit of the job was reached"},
    {"process-limit", "a limit of this process was reached, not the allocator's"},
    {"shared-memory", "shared memory (/dev/shm) is full"},
    {"pinned-memory", "pinned host memory ran out, not the GPU's memory"},
}};

int64_t line_of(const Verdict& verdict) {
  return verdict.evidence.empty() ? INT64_MAX : verdict.evidence.front().line;
}

// Returns whether `verdict` rests on every line that `other` rests on, so that it already explains that failure.
bool rests_on(const Verdict& verdict, const Verdict& other) {
  return std::all_of(other.evidence.begin(), other.evidence.end(), [&](const Sighting& seen) {
    return std::any_of(verdict.evidence.begin(), verdict.evidence.end(),
                       [&](const Sighting& one) { return one.line == seen.line; });
  });
}

}  // namespace

std::string_view name_of(Cause cause) {
  return kCauses[static_cast<size_t>(cause)].name;
}

std::string_view title_of(Cause cause) {
  return kCauses[static_cast<size_t>(cause)].title;
}

std::string_view name_of(Certainty certainty) {
  constexpr std::array<std::string_view, 3> kNames = {"possible", "likely", "sure"};
  return kNames[static_cast<size_t>(certainty)];
}

std::string shape_words(const std::vector<int64_t>& dims) {
  return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, " x "));
}

std::string count_words(int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

Explanation explain(const Facts& facts) {
  Explanation explanation;
  explanation.lines = facts.lines;
  for (const PoolFailure& pool : facts.pools)
    if (pool.harmless) explanation.harmless.push_back(pool.seen);
  std::vector<Verdict> verdicts;
  for (auto* const decide :
       {decide_pool, decide_torch, decide_xla, decide_kernel, decide_limits, decide_array, decide_disguise})
    if (auto verdict = decide(facts)) verdicts.push_back(std::move(*verdict));
  if (verdicts.empty()) {
    explanation.verdict.summary = "nothing in it is known as a sign of memory running out";
    return explanation;
  }
  // A cause before "not enough", then the more certain one, then the earlier line: what failed first made the rest
  // fail.
  std::stable_sort(verdicts.begin(), verdicts.end(), [](const Verdict& a, const Verdict& b) {
    const bool a_knows = a.cause != Cause::kNotEnough, b_knows = b.cause != Cause::kNotEnough;
    if (a_knows != b_knows) return a_knows;
    if (a.certainty != b.certainty) return a.certainty > b.certainty;
    if (a.figures.empty() != b.figures.empty()) return b.figures.empty();
    return line_of(a) < line_of(b);
  });
  explanation.verdict = std::move(verdicts.front());
  explanation.also.assign(std::make_move_iterator(verdicts.begin() + 1), std::make_move_iterator(verdicts.end()));
  std::erase_if(explanation.also, [&](const Verdict& other) {
    return other.cause == Cause::kNotEnough && rests_on(explanation.verdict, other);
  });
  return explanation;
}

}  // namespace plimsoll::engine::explain
