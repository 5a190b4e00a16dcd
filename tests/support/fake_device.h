// A device whose answers the test sets, and graphs parsed from text.
#pragma once

#include <stdexcept>

#include "device/device.h"
#include "ops/op.h"

namespace plimsoll::engine::testing {

class FakeDevice : public Device {
 public:
  bool may_fuse = true;
  Bytes workspace = 0;

  const DeviceInfo& info() const override { return info_; }
  Result<KernelOffer> offer(const Graph&, const Node&) const override {
    KernelOffer offer;
    offer.kernel = "fake";
    offer.workspace = workspace;
    offer.seconds = 1;
    return offer;
  }
  bool fuses(const Graph&, const Node&) const override { return may_fuse; }
  bool has_epilogues() const override { return true; }
  Bytes overhead_bound(const BoundCounts&) const override { return kMiB; }

 private:
  DeviceInfo info_;
};

// Returns a graph's text with every f32 replaced by f64, for the reference kernels.
inline std::string in_f64(std::string text) {
  for (size_t at = text.find("f32"); at != std::string::npos; at = text.find("f32")) text.replace(at, 3, "f64");
  return text;
}

inline Graph graph_of(std::string_view text) {
  Graph graph = require(parse_graph(text));
  require(verify(graph));
  return graph;
}

}  // namespace plimsoll::engine::testing
