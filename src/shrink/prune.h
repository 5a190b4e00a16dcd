// Structured pruning: which channels leave, and the smaller model.
#pragma once

#include <optional>
#include <set>

#include "shrink/channels.h"
#include "shrink/constants.h"
#include "shrink/held_model.h"

namespace plimsoll::engine {

// By what the channels of a group are ranked.
enum class Importance {
  kMagnitude,  // the norm of what writes a channel times the norm of what reads it
  kBatchNorm,  // the scale of BatchNormalization; by magnitude in groups without one
  kLoss,       // the first-order effect on the loss: weight times gradient
};

// |weight * gradient|, added up over batches, by the name of the weight. Empty: not measured.
using Effects = std::map<std::string, std::vector<float>>;

// One number per class. Without weights, all are 1.
std::vector<double> scores(const HeldModel& held, const ChannelMap& map, Importance importance, const Effects& effects);

struct Choice {
  double ratio = 0;        // the share of the channels of each group that leaves
  int64_t multiple = 1;    // widths are rounded to multiples of this
  bool across = false;     // the share is that of all groups together: less important groups lose more
  bool only_free = false;  // only channels that are constant leave, whatever the ratio
  // By group: how many times `multiple` channels stay beside those of the ratio. May be shorter than the groups.
  std::vector<int64_t> extra = {};
};

// Returns by class whether it stays. At least one channel of a group stays.
std::vector<bool> choose(const ChannelMap& map, const std::vector<double>& scores, const std::vector<bool>& free,
                         const Choice& choice);

// Returns the smaller model, without values if `values` is false: enough to price it. `from` is not changed.
Result<HeldModel> cut(const HeldModel& from, const ChannelMap& map, const std::vector<bool>& keep, bool values);

// Removes what the file says of the shapes of layers: they are computed again when the model is read.
void forget_shapes(Description& description);

// "conv1, conv2: 64 -> 32"; for groups that stay, why.
struct GroupReport {
  std::string layers;
  int64_t before = 0, after = 0;
  std::string locked;
};
std::vector<GroupReport> group_reports(const Model& model, const ChannelMap& map, const std::vector<bool>& keep);

}  // namespace plimsoll::engine
