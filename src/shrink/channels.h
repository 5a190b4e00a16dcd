// Which channels of a model can leave it together.
//
// A channel is one index of the last axis of a tensor between layers. Layers tie channels together: an addition ties
// those of its inputs, a depthwise convolution its inputs to its outputs, a concatenation makes a list of several. All
// channels that are tied are one class, and leave together. The channels of a layer's width (the filters of a
// convolution, the units of a Dense, the heads of an attention) begin a class each. Classes that belong to the same
// widths are a group: of a group, any number of classes may leave.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/calls.h"
#include "model/model.h"

namespace plimsoll::engine {

using Classes = std::vector<int32_t>;  // the class of each index of an axis

// A width that a layer's configuration sets.
struct Width {
  size_t layer = 0;  // index in LayerTree::layers
  std::string key;   // "filters", "units", "num_heads", "output_dim"
  Classes classes;
};

// An axis of a weight whose indices are channels.
struct WeightAxis {
  size_t weight = 0;  // index in Model::weights()
  size_t axis = 0;
  bool reads = false;  // the layer reads these channels: the input axis of a kernel
  Classes classes;
};

// A size in the configuration of a layer that follows the channels: the last entry of a Reshape's target_shape.
struct FollowingSize {
  size_t layer = 0;
  std::string key;
  Classes classes;
};

// The last size of a nested model's input.
struct NestedInput {
  std::vector<std::string> names;  // of the model, and of its InputLayer; of the model alone if it has none
  bool has_layer = true;
  Classes classes;
};

// A layer that multiplies the channels of a tensor by a kernel and adds them up. A channel that is constant can be
// folded into its bias.
struct Reader {
  size_t call = 0;    // index in LayerProgram::calls
  size_t tensor = 0;  // that it reads
  size_t kernel = 0, axis = 0;
  // The kernel's axes that the bias has, in its order; empty: nothing but a channel of zeros can be left out unseen.
  std::vector<size_t> outputs;
  int bias = -1;  // index of the weight; -1: there is none
};

struct ChannelGroup {
  std::vector<size_t> widths;  // indices in ChannelMap::widths
  Classes classes;
  std::string locked;  // why none of them can leave; "": they can
};

struct ChannelMap {
  LayerProgram program;
  std::vector<std::vector<size_t>> weights_of;  // by layer: indices in Model::weights()
  std::vector<Classes> tensors;                 // of the last axis of each tensor of the program
  std::vector<Width> widths;
  std::vector<WeightAxis> axes;
  std::vector<FollowingSize> following;
  std::vector<NestedInput> nested;
  std::vector<Reader> readers;
  std::vector<ChannelGroup> groups;
  std::vector<int32_t> group_of;  // by class; -1: no width has it, so it stays

  size_t classes() const { return group_of.size(); }
};

// Returns the JSON object of a layer in the description of a model; null if there is none. `names` are those from the
// outermost model to the layer.
nlohmann::json* layer_object(nlohmann::json& model, const std::vector<std::string>& names);

// `statistics`: what to do with layers that compute statistics over channels (LayerNormalization). False: they lock the
// channels that they read, so that what is left computes what it did. True: their channels may leave, which changes
// the statistics of those that stay.
Result<ChannelMap> find_channels(const Description& description, const Model& model, bool statistics);

}  // namespace plimsoll::engine
