#include "execute/half_range.h"

#include <algorithm>
#include <bit>

#include "execute/probe.h"

namespace plimsoll::engine {
namespace {

constexpr int kBias = 127;
constexpr int kFirstTooLarge = 16;  // 2^16; float16 ends at 65504
constexpr int kFirstKept = -25;     // below 2^-25, float16 rounds to zero
constexpr size_t kNotFinite = 255;

size_t place_of(int exponent) {
  return static_cast<size_t>(std::clamp(exponent + kBias, 0, 255));
}

}  // namespace

void Magnitudes::add(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    const uint32_t exponent = bits >> 23;
    ++exponents[exponent];
    zeros += bits == 0 ? 1 : 0;
    if (exponent < kNotFinite) largest = std::max(largest, std::bit_cast<float>(bits));
  }
}

int64_t Magnitudes::nonzero() const {
  int64_t sum = -zeros;
  for (size_t e = 0; e < kNotFinite; ++e) sum += exponents[e];
  return sum;
}

int64_t Magnitudes::overflows(int scale) const {
  int64_t sum = 0;
  for (size_t e = place_of(kFirstTooLarge - scale); e < kNotFinite; ++e) sum += exponents[e];
  return sum;
}

int64_t Magnitudes::vanish(int scale) const {
  int64_t sum = 0;
  for (size_t e = 0; e < place_of(kFirstKept - scale); ++e) sum += exponents[e];
  return std::max<int64_t>(0, sum - zeros);
}

Result<HalfNodes> HalfNodes::of(const Model& model, int64_t samples, const DataTypes& data) {
  GraphOptions options;
  options.precision = Precision(DType::kFloat32, DType::kFloat16);
  options.data = data;
  PLIMSOLL_ASSIGN(const Phase phase, train_phase(model, samples, options));
  HalfNodes found;
  std::set<std::tuple<std::string, Stage, std::string>> half;
  for (const Node& node : phase.graph.nodes) {
    const bool in_half = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId id) { return phase.graph.type(id).dtype == DType::kFloat16; });
    (in_half ? half : found.never_half_).emplace(node.layer, node.stage, node.op);
    if (!in_half) continue;
    if (!node.layer.empty()) found.half_.emplace(node.layer, node.stage);
    const Value& input = phase.graph.value(node.inputs.empty() ? node.outputs[0] : node.inputs[0]);
    if (node.op == "cast" && input.persistent && input.category == Category::kWeights)
      found.weights_.insert(input.name);
  }
  for (const auto& key : half) found.never_half_.erase(key);
  return found;
}

bool HalfNodes::in_half(const std::string& layer, Stage stage, const std::string& op) const {
  return half_.count({layer, stage}) != 0 && never_half_.count({layer, stage, op}) == 0;
}

HalfRange::HalfRange(Session& session, HalfNodes nodes) : session_(session), nodes_(std::move(nodes)) {
  Probe(session).watch([this](const PhasePlan& phase, size_t node, bool done, const std::byte* arena) {
    if (done) look(phase, node, arena);
  });
}

HalfRange::~HalfRange() {
  Probe(session_).watch({});
}

void HalfRange::look(const PhasePlan& phase, size_t n, const std::byte* arena) {
  const Node& node = phase.graph.nodes[n];
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    const Value& value = phase.graph.value(id);
    const Placement& place = phase.values[static_cast<size_t>(id)];
    if (value.type.dtype != DType::kFloat32 || value.persistent || place.offset < 0 || place.space != Space::kDevice)
      continue;
    const Node* made_by = &node;
    if (node.body && i < node.body->outputs.size()) {
      const NodeId producer = node.body->value(node.body->outputs[i]).producer;
      if (producer != kNone) made_by = &node.body->node(producer);
    }
    const std::string& layer = made_by->layer.empty() ? node.layer : made_by->layer;
    if (made_by->stage == Stage::kUpdate || !nodes_.in_half(layer, made_by->stage, made_by->op)) continue;
    const HalfPart part = made_by->stage == Stage::kForward ? HalfPart::kOutputs : HalfPart::kGradients;
    found_[{layer, part}].add(reinterpret_cast<const float*>(arena + place.offset),
                              value.bytes() / static_cast<Bytes>(sizeof(float)));
  }
}

Status HalfRange::look_at_weights() {
  PLIMSOLL_ASSIGN(const HostView values, session_.look());
  for (const Weight& weight : session_.model().weights()) {
    const TensorView view = values[weight.name];
    if (nodes_.weights().count(weight.name) == 0 || view.data == nullptr || view.type.dtype != DType::kFloat32)
      continue;
    found_[{weight.layer, HalfPart::kWeights}].add(view.as<const float>(), view.elements());
  }
  return {};
}

}  // namespace plimsoll::engine
