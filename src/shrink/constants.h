// What each channel of a tensor is if its own computation is removed.
//
// A channel whose kernel is all zeros has the same value for every input: its bias, and what later layers make of it.
// Such a channel can leave without any change, once its value is folded into the biases of the layers that read it. For
// every other channel, the value is an estimate: what is left of it without its kernel, or, after a BatchNormalization,
// its mean.
#pragma once

#include "shrink/channels.h"
#include "shrink/held_model.h"

namespace plimsoll::engine {

struct ChannelValue {
  double value = 0;
  bool exact = false;      // the channel has this value for every input
  bool estimated = false;  // a kernel without a BatchNormalization after it: its mean is not known
};

struct ChannelValues {
  std::vector<std::vector<ChannelValue>> tensors;  // of the last axis of each tensor of the program
  // By class: all channels of it are constant wherever a layer reads them, so that it can leave without any change.
  std::vector<bool> free;
};

ChannelValues channel_values(const HeldModel& held, const ChannelMap& map);

// Adds to the biases of `held` what the channels that leave gave to the layers that stay. `keep`: by class. Returns
// what could not be folded: the names of layers without a bias.
std::vector<std::string> fold_constants(HeldModel& held, const ChannelMap& map, const ChannelValues& values,
                                        const std::vector<bool>& keep);

}  // namespace plimsoll::engine
