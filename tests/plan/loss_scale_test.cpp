// The cost of loss scaling in a plan for a GPU: one kernel that counts overflows; all updates stay one kernel.
#include "api/saved_config.h"
#include "backends/cuda/card.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/fused/kernel.h"
#include "lower/lower.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

const Precision kMixed(DType::kFloat32, DType::kFloat16);

std::unique_ptr<Backend> card(const std::string& profile) {
  return make_planned_gpu(require(cuda::card_from_profile(profile)));
}

OpenModel scaled_model(const std::string& file) {
  ModelOptions options;
  options.scale_loss = true;
  return require(open_model(file, options));
}

// Returns the nodes that are this op, or fused nodes that contain it.
std::vector<const Node*> nodes_with(const Graph& graph, const std::string& op) {
  std::vector<const Node*> list;
  for (const Node& node : graph.nodes) {
    bool has = node.op == op;
    for (size_t i = 0; node.body && i < node.body->nodes.size(); ++i) has = has || node.body->nodes[i].op == op;
    if (has) list.push_back(&node);
  }
  return list;
}

TEST(LossScalePlan, UpdatesStayOneKernelAndAllGradientsAreCountedByOne) {
  for (const char* name : {"cnn", "resnet", "mlp"}) {
    const OpenModel open = scaled_model(golden(std::string(name) + ".keras"));
    const auto backend = card("h200-141g");
    const Phase phase = require(train_phase(open.model, 8, {kMixed, assumed_data_types(open.model, false)}));
    const Graph graph = require(lower(phase.graph, backend->device())).graph;
    const auto weights = std::count_if(open.model.weights().begin(), open.model.weights().end(),
                                       [](const Weight& w) { return w.trainable; });

    const auto counts = nodes_with(graph, "count_not_finite");
    ASSERT_EQ(counts.size(), 1U) << name;
    EXPECT_EQ(counts[0]->inputs.size(), static_cast<size_t>(weights)) << name;
    // The count reads float16 gradients before their cast; the cast is part of the update.
    EXPECT_TRUE(std::any_of(counts[0]->inputs.begin(), counts[0]->inputs.end(), [&](ValueId id) {
      return graph.type(id).dtype == DType::kFloat16;
    })) << name;

    EXPECT_EQ(nodes_with(graph, "loss_scale").size(), 1U) << name;
    // If normalisations have float32 gradients, their updates are a second group, besides that of the cast gradients.
    const auto updates = nodes_with(graph, "keep_if");
    EXPECT_EQ(updates.size(), std::string(name) == "resnet" ? 2U : 1U) << name;
    size_t parts = 0;
    for (const Node* update : updates) {
      ASSERT_TRUE(update->body) << name;
      const auto pass = cuda::make_fused_kernel(graph, *update);
      ASSERT_TRUE(pass) << name << ": " << pass.error().what;
      parts += pass->parts.empty() ? 1 : pass->parts.size();
    }
    EXPECT_EQ(parts, static_cast<size_t>(weights)) << name;
    // Clipping by the global norm needs unscaled gradients, so mlp unscales earlier.
    if (std::string(name) != "mlp") {
      EXPECT_EQ(nodes_with(graph, "unscale"), updates) << name;
    }
  }
}

TEST(LossScalePlan, EveryCardPlansMixedFloat16) {
  for (const cuda::Card& known : cuda::card_profiles())
    for (const char* name : {"cnn", "resnet", "mlp"}) {
      const OpenModel open = scaled_model(golden(std::string(name) + ".keras"));
      const auto backend = make_planned_gpu(known);
      SearchRequest request;
      request.model = &open.model;
      request.device = &backend->device();
      request.graph = {kMixed, assumed_data_types(open.model, false)};
      request.batch = 8;
      request.evaluate_batch = 8;
      const auto found = search(request);
      ASSERT_TRUE(found) << known.profile << ", " << name << ": " << found.error().what;
      EXPECT_TRUE(found->fits) << known.profile << ", " << name;
      EXPECT_NE(found->plan.slot(kLossScale), nullptr) << known.profile << ", " << name;
    }
}

TEST(LossScalePlan, ACardWithoutBFloat16NamesMixedFloat16) {
  plimsoll::engine::RunOptions options;
  options.precision = "mixed_bfloat16";
  for (const char* profile : {"t4-16g", "rtx-2080-ti-11g"}) {
    options.device = profile;
    const auto backend = open_backend(options);
    ASSERT_FALSE(backend) << profile;
    EXPECT_EQ(backend.error().code, ErrorCode::kUsage);
    EXPECT_NE(backend.error().what.find("no bfloat16"), std::string::npos) << backend.error().what;
    EXPECT_NE(backend.error().remedies.at(0).find("--precision mixed_float16"), std::string::npos);
  }
  options.device = "rtx-3060-12g";
  EXPECT_TRUE(open_backend(options));
}

// The expected JSON is what Keras 3.15.1 writes for LossScaleOptimizer(Adam()) and LossScaleOptimizer(SGD(0.5)),
// without defaults.
TEST(SavedConfig, ALossScaleIsWrittenAsKerasWritesItsWrapper) {
  const auto wrapper = [](const nlohmann::json& inner) {
    return nlohmann::json{{"module", "keras.optimizers"},
                          {"class_name", "LossScaleOptimizer"},
                          {"config",
                           {{"name", "loss_scale_optimizer"},
                            {"inner_optimizer", inner},
                            {"initial_scale", 32768.0},
                            {"dynamic_growth_steps", 2000}}},
                          {"registered_name", nullptr}};
  };
  const auto saved = [](const ModelOptions& options) {
    const OpenModel open = require(open_model(golden("cnn.keras"), options));
    return nlohmann::json::parse(open.config_text).at("compile_config").at("optimizer");
  };
  const nlohmann::json plain = saved({});
  ModelOptions options;
  options.scale_loss = true;
  EXPECT_EQ(saved(options), wrapper(plain));
  options.learning_rate = 0.25;
  nlohmann::json slower = plain;
  slower["config"]["learning_rate"] = 0.25;
  EXPECT_EQ(saved(options), wrapper(slower));
  options = {};
  options.scale_loss = true;
  options.optimizer = "sgd";
  EXPECT_EQ(saved(options), wrapper({{"module", "keras.optimizers"},
                                     {"class_name", "SGD"},
                                     {"config", nlohmann::json::object()},
                                     {"registered_name", nullptr}}));
  // A LossScaleOptimizer that the user chose is not wrapped again, and its inner optimizer gets the learning rate.
  nlohmann::json own = wrapper(plain);
  own["config"]["initial_scale"] = 8.0;
  options.optimizer = own.dump();
  options.learning_rate = 0.25;
  own["config"]["inner_optimizer"] = slower;
  EXPECT_EQ(saved(options), own);
  EXPECT_EQ(require(open_model(golden("cnn.keras"), options)).model.optimizer().loss_scale->initial, 8);
}

}  // namespace
}  // namespace plimsoll::engine::testing
