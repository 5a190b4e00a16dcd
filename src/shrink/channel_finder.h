// What the rules of layer classes (channel_rules.cpp) work with: channels that are tied, locked and used.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "model/tree.h"
#include "shrink/channels.h"

namespace plimsoll::engine {

class ChannelFinder {
 public:
  ChannelFinder(const Description& description, const Model& model, bool statistics);
  Result<ChannelMap> run();

  // ---- For the rules. Channels are numbers until run() ends; Classes holds them.

  bool statistics() const { return statistics_; }
  const Shape& shape(size_t tensor) const { return map_.program.tensors[tensor]; }
  const Classes& channels(size_t tensor) const { return map_.tensors[tensor]; }
  void set(size_t tensor, Classes channels) { map_.tensors[tensor] = std::move(channels); }
  Classes fresh(size_t count);
  // Ties a[i] to b[i]. The lists must be equally long.
  void tie(const Classes& a, const Classes& b);
  void lock(const Classes& channels, const std::string& why);

  // Returns the channels of a layer's width. Each layer has one width per key, whatever the number of its calls.
  Classes width(size_t layer, const std::string& key, int64_t size);
  // Says that an axis of a weight has these channels. In further calls of the layer, ties them to those of the first.
  void use(size_t layer, const std::string& weight, size_t axis, const Classes& channels, bool reads = false);
  void follow(size_t layer, const std::string& key, const Classes& channels);
  // `bias`: its name, or "".
  void reader(size_t call, size_t tensor, const std::string& kernel, size_t axis, std::vector<size_t> outputs,
              const std::string& bias);
  bool has_weight(size_t layer, const std::string& name) const { return find_weight(layer, name) >= 0; }

  const LayerCall& call(size_t index) const { return map_.program.calls[index]; }
  const LayerObject& object(const LayerCall& call) const { return tree_.layers[call.layer]; }
  nlohmann::json config(const LayerCall& call);
  // Whether the calls of an operation have nothing but tensors and numbers as arguments: x * 2.
  bool has_only_numbers(const LayerCall& call);

 private:
  int32_t root(int32_t channel);
  int find_weight(size_t layer, const std::string& name) const;
  Status make_program();
  Status find_nested();
  Status walk(const ModelTree& tree, const std::vector<std::string>& names, const std::vector<size_t>& arguments,
              std::vector<size_t>& outputs);
  void finish();
  void make_groups();

  nlohmann::json model_config_;
  const Model& model_;
  const LayerTree& tree_;
  bool statistics_;
  ChannelMap map_;
  std::vector<int32_t> parent_;
  std::map<int32_t, std::string> locks_;
  std::map<std::pair<size_t, std::string>, size_t> width_of_;
  std::map<std::pair<size_t, size_t>, size_t> axis_of_;
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> calls_of_;  // by layer and node, in the program's order
  std::map<std::vector<std::string>, size_t> nested_of_;
};

// Applies the rule of the call's class.
void follow_channels(ChannelFinder& finder, size_t call);

}  // namespace plimsoll::engine
