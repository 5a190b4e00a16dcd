// Which share of its channels a model must lose to reach a goal.
#pragma once

#include <optional>

#include "shrink/prune.h"

namespace plimsoll::engine {

// One cut of a model by a share of its channels.
class PruneSearch {
 public:
  struct Found {
    std::optional<double> ratio;  // none: no ratio reaches the goal
    double least = 0;             // what the largest ratio reaches
  };

  PruneSearch(const HeldModel& held, const ChannelMap& map, const ChannelValues& values, std::vector<double> scores,
              Choice choice)
      : held_(held), map_(map), values_(values), scores_(std::move(scores)), choice_(choice) {}

  std::vector<bool> keep(double ratio) const {
    Choice choice = choice_;
    choice.ratio = ratio;
    return choose(map_, scores_, values_.free, choice);
  }

  // Takes back what find() gave to single groups.
  void forget_extra() { choice_.extra.clear(); }

  // Finds the smallest ratio with which the size, which falls with the ratio, is at most `goal`. `size`:
  // Result<double>(const HeldModel&), of a model without values.
  template <typename Size>
  Result<Found> find(double goal, const Size& size) {
    constexpr int kSteps = 100;
    int low = 0, high = kSteps - 1;  // in percent; `high` meets the goal
    const auto at = [&](int percent) -> Result<double> {
      PLIMSOLL_ASSIGN(const HeldModel made, cut(held_, map_, keep(percent / 100.0), false));
      return size(made);
    };
    PLIMSOLL_ASSIGN(double least, at(high));
    if (least > goal && choice_.multiple > 1) {  // what is asked for comes before what kernels like
      choice_.multiple = 1;
      PLIMSOLL_ASSIGN(least, at(high));
    }
    if (least > goal) return Found{std::nullopt, least};
    PLIMSOLL_ASSIGN(const double now, at(low));
    if (now <= goal) return Found{0, least};
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      PLIMSOLL_ASSIGN(const double reached, at(middle));
      (reached <= goal ? high : low) = middle;
    }
    PLIMSOLL_TRY(give_back(high / 100.0, goal, size));
    return Found{high / 100.0, least};
  }

 private:
  // Rounded widths leave room below the goal. It is given to the groups in turn.
  template <typename Size>
  Status give_back(double ratio, double goal, const Size& size) {
    constexpr int kMostTries = 64;
    choice_.extra.assign(map_.groups.size(), 0);
    std::vector<bool> full(map_.groups.size());
    for (size_t g = 0; g < full.size(); ++g) full[g] = !map_.groups[g].locked.empty();
    int tries = 0;
    for (bool any = true; any && tries < kMostTries;) {
      any = false;
      for (size_t g = 0; g < full.size() && tries < kMostTries; ++g) {
        if (full[g]) continue;
        const std::vector<bool> before = keep(ratio);
        ++choice_.extra[g];
        const std::vector<bool> after = keep(ratio);
        if (after != before) {
          ++tries;
          PLIMSOLL_ASSIGN(const HeldModel made, cut(held_, map_, after, false));
          PLIMSOLL_ASSIGN(const double reached, size(made));
          if (reached <= goal) {
            any = true;
            continue;
          }
        }
        --choice_.extra[g];
        full[g] = true;
      }
    }
    return {};
  }

  const HeldModel& held_;
  const ChannelMap& map_;
  const ChannelValues& values_;
  std::vector<double> scores_;
  Choice choice_;
};

}  // namespace plimsoll::engine
