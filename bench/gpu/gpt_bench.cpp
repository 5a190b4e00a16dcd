// Times training steps of GPT-2 small on one GPU. The graph is built from ops, because its layers cannot be imported
// from Keras yet.
//
//   gpt_bench [--batch 16] [--length 1024] [--layers 12] [--steps 30] [--recompute PERCENT] [--profile 1] [--device
//   gpu]
//
// The network is that of the peers (bench/gpu/peers.py): learned positions, pre-norm blocks, exact gelu, an untied head
// without bias. The vocabulary of 50,257 is padded to 50,304 columns, so that rows of logits are aligned to 16 bytes. A
// bias of -30,000 keeps the padded columns out of every softmax. Weights and Adam's state are float32, everything else
// is bf16, as under mixed_bfloat16.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>

#include "api/open_backend.h"
#include "autodiff/gradient.h"
#include "ops/build.h"
#include "ops/op.h"
#include "plan/order.h"
#include "plan/plan.h"
#include "plan/recompute.h"
#include "plimsoll/plimsoll.h"

namespace plimsoll::engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kWidth = 768, kHeads = 12, kVocabulary = 50257, kColumns = 50304;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Gpt {
 public:
  Gpt(int64_t batch, int64_t length, int64_t layers) : batch_(batch), length_(length), rows_(batch * length) {
    const ValueId ids = b_.input("ids", {DType::kInt32, Shape{batch, length}}, Category::kInputs, false);
    const ValueId targets = b_.input("targets", {DType::kInt32, Shape{rows_}}, Category::kInputs, false);
    const ValueId positions = reshape(half(weight("positions", Shape{length, kWidth})), {1, length, kWidth});
    ValueId x = b_.add1("embedding", {half(weight("tokens", Shape{kVocabulary, kWidth})), ids});
    x = b_.add1("add", {x, b_.add1("broadcast", {positions}, {{"shape", AttrList{batch, length, kWidth}}})});
    x = reshape(x, {rows_, kWidth});
    for (int64_t i = 0; i < layers; ++i) x = block(x, fmt::format("block{}", i));
    x = norm(x, "norm");
    const ValueId mask = b_.persistent("head/mask", {DType::kBFloat16, Shape{kColumns}}, Category::kWeights);
    ValueId logits = b_.add1("matmul", {x, half(weight("head", Shape{kColumns, kWidth}))}, {{"transpose_b", true}});
    logits = b_.add1("bias_add", {logits, mask});
    const ValueId loss_rows = b_.add1("softmax_cross_entropy", {logits, targets}, {{"sparse", true}});
    const ValueId scale = b_.persistent("scale", {DType::kFloat32, Shape{}}, Category::kInputs);
    const ValueId loss = b_.add1("weighted_sum", {loss_rows, scale});
    const std::vector<ValueId> gradients = append_gradients(b_, loss, weights_);
    std::vector<TrainedWeight> trained;
    for (size_t i = 0; i < weights_.size(); ++i) trained.push_back({weights_[i], gradients[i]});
    std::vector<std::string> unsupported;
    append_updates(b_, parse_optimizer("adam", unsupported), trained);
    const ValueId tally = b_.persistent("tally:loss", {DType::kFloat32, Shape{}}, Category::kInputs);
    b_.update(tally, b_.add1("affine", {loss}, {{"scale", 1.0}, {"offset", 0.0}}));
  }

  Graph take() {
    require(b_.status());
    Graph graph = b_.take();
    graph.name = "train";
    require(verify(graph));
    return graph;
  }

 private:
  ValueId weight(const std::string& name, const Shape& shape) {
    weights_.push_back(b_.persistent(name, {DType::kFloat32, shape}, Category::kWeights));
    return weights_.back();
  }
  ValueId half(ValueId value) { return b_.add1("cast", {value}, {{"dtype", std::string("bf16")}}); }
  ValueId reshape(ValueId value, std::vector<int64_t> shape) {
    return b_.add1("reshape", {value}, {{"shape", std::move(shape)}});
  }
  ValueId norm(ValueId x, const std::string& name) {
    const ValueId gamma = weight(name + "/gamma", Shape{kWidth}), beta = weight(name + "/beta", Shape{kWidth});
    return b_.add("layer_norm", {x, gamma, beta}, {{"epsilon", 1e-5}, {"scale", true}, {"center", true}})[0];
  }
  ValueId dense(ValueId x, int64_t from, int64_t to, const std::string& name) {
    const ValueId kernel = half(weight(name + "/kernel", Shape{from, to})),
                  bias = half(weight(name + "/bias", Shape{to}));
    return b_.add1("bias_add", {b_.add1("matmul", {x, kernel}), bias});
  }
  ValueId block(ValueId x, const std::string& name) {
    const auto layer = b_.in_layer(name);
    const ValueId qkv = reshape(dense(norm(x, name + "/norm1"), kWidth, 3 * kWidth, name + "/qkv"),
                                {batch_, length_, 3, kHeads, kWidth / kHeads});
    const ValueId y = b_.add("attention", {qkv}, {{"causal", true}, {"scale", 1.0 / 8.0}})[0];
    x = b_.add1("add", {x, dense(reshape(y, {rows_, kWidth}), kWidth, kWidth, name + "/out")});
    const ValueId up = dense(norm(x, name + "/norm2"), kWidth, 4 * kWidth, name + "/up");
    const ValueId active = b_.add1("gelu", {up}, {{"approximate", false}});
    x = b_.add1("add", {x, dense(active, 4 * kWidth, kWidth, name + "/down")});
    return x;
  }

  GraphBuilder b_ = make_builder();
  int64_t batch_, length_, rows_;
  std::vector<ValueId> weights_;
};

struct Flags {
  int64_t batch = 16, length = 1024, layers = 12;
  int steps = 30;
  int64_t recompute = 0;  // percent of the live set
  bool profile = false;
  RunOptions run;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  flags.run.device = "gpu";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--batch") flags.batch = std::stoll(value);
    if (name == "--length") flags.length = std::stoll(value);
    if (name == "--layers") flags.layers = std::stoll(value);
    if (name == "--steps") flags.steps = std::stoi(value);
    if (name == "--recompute") flags.recompute = std::stoll(value);
    if (name == "--profile") flags.profile = value == "1";
    if (name == "--device") flags.run.device = value;
  }
  return flags;
}

// Sets small random weights, unit scales and the mask of the padding; the state stays zero. Weights are pieces of one
// long random sequence, because 163 million draws would take seconds.
void fill_persistent(const Plan& plan, Memory& memory, double scale) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> drawn(size_t{1} << 20);
  for (float& value : drawn) value = normal(random);
  for (const PersistentSlot& slot : plan.persistent) {
    const auto count = static_cast<size_t>(slot.type.shape.elements());
    if (slot.name == "head/mask") {
      std::vector<uint16_t> mask(count, 0);
      std::fill(mask.begin() + kVocabulary, mask.end(), uint16_t{0xC6EA});  // about -30,000 in bf16
      require(memory.write(slot.offset, mask.data(), slot.type.bytes()));
    } else if (slot.category == Category::kWeights) {
      std::vector<float> values(count, slot.name.ends_with("gamma") ? 1.0F : 0.0F);
      const bool constant = slot.name.ends_with("gamma") || slot.name.ends_with("beta");
      for (size_t done = 0; !constant && done < count;) {
        const size_t first = random() % drawn.size(), piece = std::min(drawn.size() - first, count - done);
        std::copy_n(drawn.begin() + static_cast<ptrdiff_t>(first), piece,
                    values.begin() + static_cast<ptrdiff_t>(done));
        done += piece;
      }
      require(memory.write(slot.offset, values.data(), slot.type.bytes()));
    } else if (slot.name == "scale" || slot.name == "learning_rate") {
      const auto value = static_cast<float>(slot.name == "scale" ? scale : 1e-4);
      require(memory.write(slot.offset, &value, 4));
    } else if (slot.name == "iteration") {
      const int64_t one = 1;
      require(memory.write(slot.offset, &one, 8));
    }
  }
}

int run(const Flags& flags) {
  const auto start = Clock::now();
  const auto backend = require(open_backend(flags.run));
  Graph graph = Gpt(flags.batch, flags.length, flags.layers).take();
  LoweredGraph lowered = reorder_for_memory(require(lower(graph, backend->device())));
  if (flags.recompute > 0) {
    const Bytes live = live_set_of(lowered);
    auto again = recompute_percent({lowered, live, live}, backend->device(), flags.recompute);
    if (!again) throw std::runtime_error("so much cannot be recomputed");
    lowered = std::move(again->graph);
  }
  Plan plan;
  const Graph* const planned = &lowered.graph;
  PersistentLayout layout = lay_out({&planned, 1});
  plan.phases.push_back(place_phase({PhaseKind::kTrain}, flags.batch, lowered, layout));
  plan.persistent = std::move(layout.slots);
  plan.persistent_bytes = layout.bytes;
  plan.arena_bytes = plan.phases[0].arena_bytes;
  require(validate(plan));
  const PhasePlan& phase = plan.phases[0];
  const auto memory = require(backend->reserve(Space::kDevice, plan.arena_bytes));
  require(memory->fill(0, std::byte{0}, memory->bytes()));
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const Node& node = phase.graph.nodes[n];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(memory->at(phase.values[static_cast<size_t>(id)].offset));
    for (ValueId id : node.outputs) outputs.push_back(memory->at(phase.values[static_cast<size_t>(id)].offset));
    void* workspace = phase.nodes[n].workspace_bytes > 0 ? memory->at(phase.nodes[n].workspace_offset) : nullptr;
    kernels.push_back(require(backend->bind(
        {phase.graph, node, phase.nodes[n].kernel, inputs, outputs, workspace, phase.nodes[n].workspace_bytes})));
  }
  const Bytes ids_at = phase.values[static_cast<size_t>(phase.graph.find("ids"))].offset;
  const Bytes targets_at = phase.values[static_cast<size_t>(phase.graph.find("targets"))].offset;
  std::vector<int32_t> tokens(static_cast<size_t>(flags.batch * flags.length)), next(tokens);
  std::mt19937 random(3);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(random() % kVocabulary);
  for (size_t i = 0; i < tokens.size(); ++i) next[i] = static_cast<int32_t>(random() % kVocabulary);
  const auto feed = [&] {
    require(memory->write(ids_at, tokens.data(), static_cast<Bytes>(tokens.size() * 4)));
    require(memory->write(targets_at, next.data(), static_cast<Bytes>(next.size() * 4)));
  };
  const auto set = [&] {
    fill_persistent(plan, *memory, 1.0 / static_cast<double>(flags.batch * flags.length));
    feed();
  };
  const auto loss = [&] {
    float value = 0;
    require(memory->read(plan.slot("tally:loss")->offset, &value, 4));
    return value;
  };
  set();
  for (const auto& kernel : kernels) kernel->run();
  require(backend->finish());
  const auto recorded = require(backend->record(kernels));
  set();
  const double ready = seconds_since(start);
  recorded->run();
  require(backend->finish());
  const float first_loss = loss();
  const double first = seconds_since(start);
  // The memory of the ids is reused after they are read, so they are written again before each timed step. The time
  // does not depend on the ids, as long as they are valid tokens.
  std::vector<double> times;
  for (int i = 0; i < flags.steps; ++i) {
    feed();
    const auto begin = Clock::now();
    recorded->run();
    require(backend->finish());
    times.push_back(seconds_since(begin) * 1e3);
  }
  const float last_loss = loss();
  std::sort(times.begin(), times.end());
  if (flags.profile) {
    std::map<std::string, std::pair<int, double>> by_op;
    for (size_t n = 0; n < kernels.size(); ++n) {
      feed();
      kernels[n]->run();
      require(backend->finish());
      const auto begin = Clock::now();
      for (int i = 0; i < 5; ++i) kernels[n]->run();
      require(backend->finish());
      const double seconds = seconds_since(begin) / 5;
      const Node& node = phase.graph.nodes[n];
      std::string what = node.op + " " + to_text(phase.graph.type(node.outputs[0]));
      if (node.body)
        for (size_t i = 0; i < node.body->nodes.size() && i < 5; ++i) what += " " + node.body->nodes[i].op;
      auto& [count, total] = by_op[what + " " + phase.nodes[n].kernel];
      ++count;
      total += seconds;
    }
    std::vector<std::pair<std::string, std::pair<int, double>>> sorted(by_op.begin(), by_op.end());
    std::sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.second.second > b.second.second; });
    for (const auto& [what, total] : sorted)
      fmt::print(stderr, "{:9.0f} us in {:3}  {}\n", total.second * 1e6, total.first, what);
  }
  fmt::print(
      R"({{"model": "gpt2", "batch": {}, "length": {}, "precision": "mixed_bfloat16", "ms": {:.3f}, "best_ms": {:.3f}, "predicted_ms": {:.3f}, "ready_s": {:.2f}, "first_step_s": {:.2f}, "arena_mib": {:.0f}, "driver_mib": {:.0f}, "first_loss": {:.4f}, "last_loss": {:.4f}}})"
      "\n",
      flags.batch, flags.length, times[times.size() / 2], times[0], phase.seconds * 1e3, ready, first,
      static_cast<double>(plan.arena_bytes) / kMiB, static_cast<double>(backend->held_bytes()) / kMiB, first_loss,
      last_loss);
  return 0;
}

}  // namespace
}  // namespace plimsoll::engine

int main(int argc, char** argv) {
  try {
    return plimsoll::engine::run(plimsoll::engine::parse(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
