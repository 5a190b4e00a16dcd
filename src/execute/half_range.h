// Finds the layers whose values float16 cannot hold, by looking at a training in float32. Each value counts that a plan
// under mixed_float16 would keep in float16: outputs of layers, their gradients, and weights where they are cast.
//
// A float32 run shows the magnitudes of all layers. In float16, the first overflow would turn everything after it into
// infinities, and hide the other layers.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "execute/session.h"

namespace plimsoll::engine {

// How many values of each magnitude: by the exponent of float32, as it is stored (127: from 1 to 2).
struct Magnitudes {
  std::array<int64_t, 256> exponents = {};  // [255]: not finite
  int64_t zeros = 0;                        // they count in exponents[0], too
  float largest = 0;                        // of the finite ones

  void add(const float* values, int64_t count);
  int64_t not_finite() const { return exponents[255]; }
  int64_t nonzero() const;  // of the finite ones
  // Of the values times 2^scale: how many become infinite in float16, and how many of the nonzero ones become zero.
  int64_t overflows(int scale) const;
  int64_t vanish(int scale) const;
};

enum class HalfPart : uint8_t { kOutputs, kGradients, kWeights };

using LayerPart = std::pair<std::string, HalfPart>;

// The nodes and weights that compute in float16 under mixed_float16.
class HalfNodes {
 public:
  // `samples`: of one batch. `data`: the types of the data.
  static Result<HalfNodes> of(const Model& model, int64_t samples, const DataTypes& data);

  bool in_half(const std::string& layer, Stage stage, const std::string& op) const;
  const std::set<std::string>& weights() const { return weights_; }
  bool any() const { return !half_.empty(); }

 private:
  std::set<std::pair<std::string, Stage>> half_;                      // layers with a result in float16
  std::set<std::tuple<std::string, Stage, std::string>> never_half_;  // ops of them whose results are all float32
  std::set<std::string> weights_;
};

class HalfRange {
 public:
  // Looks at the session's steps from now on, until it is destroyed. The session must train in float32, in host memory.
  HalfRange(Session& session, HalfNodes nodes);
  ~HalfRange();
  HalfRange(const HalfRange&) = delete;
  HalfRange& operator=(const HalfRange&) = delete;

  Status look_at_weights();  // as they are now
  const std::map<LayerPart, Magnitudes>& found() const { return found_; }

 private:
  void look(const PhasePlan& phase, size_t node, const std::byte* arena);

  Session& session_;
  HalfNodes nodes_;
  std::map<LayerPart, Magnitudes> found_;
};

}  // namespace plimsoll::engine
