// The validator on plans of real models: it accepts them unchanged, and refuses them when they are broken in any way.
#include "ops/op.h"
#include "tests/support/compiled.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

bool is_view(const Node& node) {
  return op_def(node.op).kind == OpKind::kView;
}

// A plan to break, in its phase `phase`.
struct Broken {
  Plan plan;
  size_t phase;
  PhasePlan& at() { return plan.phases[phase]; }
  const Graph& graph() { return at().graph; }
  Placement& place(ValueId id) { return at().values[static_cast<size_t>(id)]; }
  bool transient(ValueId id) { return place(id).offset >= plan.persistent_bytes; }
};

class Validate : public ::testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  void SetUp() override {
    RunOptions options;
    const std::string device = std::get<1>(GetParam());
    open_.emplace(require(open_model(golden(std::get<0>(GetParam())), {})));
    backend_ = open_device(device);
    SearchRequest request;
    request.model = &open_->model;
    request.device = &backend_->device();
    request.graph = {device == "reference" ? DType::kFloat64 : DType::kFloat32,
                     assumed_data_types(open_->model, false)};
    request.batch = 8;
    request.per_micro_batch_norm = true;
    request.evaluate_batch = request.predict_batch = 8;
    plans_.push_back(compiled(request, 8));
    plans_.push_back(compiled(request, 8, 20));
    plans_.push_back(compiled(request, 3, 20));
  }

  // Calls `damage` for every phase of every plan. `damage` breaks copies of the plan and calls `refused` for each.
  template <typename Damage>
  void each_phase(Damage damage, int at_least = 1) {
    int count = 0;
    for (const Plan& plan : plans_)
      for (size_t phase = 0; phase < plan.phases.size(); ++phase) count += damage(plan, phase);
    EXPECT_GE(count, at_least);
  }

  static void expect_refused(const Plan& plan, const std::string& what) {
    const Status status = validate(plan);
    EXPECT_FALSE(status) << "not refused: " << what;
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kInternal) << what;
    }
  }

  std::optional<OpenModel> open_;
  std::unique_ptr<Backend> backend_;
  std::vector<Plan> plans_;
};

TEST_P(Validate, PassesPlansAsTheyAreMade) {
  for (const Plan& plan : plans_) EXPECT_TRUE(validate(plan)) << to_text(validate(plan).error());
}

TEST_P(Validate, RefusesAPlaceThatIsNotAligned) {
  each_phase([&](const Plan& plan, size_t phase) {
    int count = 0;
    for (size_t v = 0; v < plan.phases[phase].values.size(); ++v) {
      Broken b{plan, phase};
      if (b.at().values[v].offset < 0) continue;
      b.at().values[v].offset += 32;
      expect_refused(b.plan, "'" + b.graph().values[v].name + "' moved by 32");
      ++count;
    }
    return count;
  });
}

TEST_P(Validate, RefusesPersistentValuesAndUpdatesElsewhereThanInTheirSlot) {
  each_phase([&](const Plan& plan, size_t phase) {
    int count = 0;
    for (ValueId id : plan.phases[phase].graph.inputs) {
      Broken b{plan, phase};
      if (!b.graph().value(id).persistent) continue;
      b.place(id).offset += 64;
      expect_refused(b.plan, "'" + b.graph().value(id).name + "' moved by 64");
      ++count;
    }
    for (const Update& update : plan.phases[phase].graph.updates) {
      for (const Bytes offset : {plan.arena_bytes - 64, Bytes{kNone}}) {
        Broken b{plan, phase};
        b.place(update.value).offset = offset;
        expect_refused(b.plan,
                       "the update of '" + b.graph().value(update.persistent).name + "' at " + std::to_string(offset));
      }
      ++count;
    }
    return count;
  });
}

// A view must have the place of the viewed value, even if another place is free.
TEST_P(Validate, RefusesAViewThatIsNotWhereWhatItViewsIs) {
  each_phase(
      [&](const Plan& plan, size_t phase) {
        int count = 0;
        for (const Node& node : plan.phases[phase].graph.nodes) {
          if (!is_view(node)) continue;
          Broken b{plan, phase};
          const Bytes behind = b.at().arena_bytes;
          b.place(node.outputs[0]).offset = behind;
          b.at().arena_bytes += align_up(b.graph().value(node.outputs[0]).bytes());
          b.plan.arena_bytes = std::max(b.plan.arena_bytes, b.at().arena_bytes);
          expect_refused(b.plan, "the view '" + b.graph().value(node.outputs[0]).name + "' moved behind everything");
          ++count;
        }
        return count;
      },
      0);
}

TEST_P(Validate, RefusesTwoInputsOfANodeInOnePlace) {
  each_phase([&](const Plan& plan, size_t phase) {
    int count = 0;
    const PhasePlan& p = plan.phases[phase];
    for (const Node& node : p.graph.nodes)
      for (ValueId a : node.inputs)
        for (ValueId other : node.inputs) {
          Broken b{plan, phase};
          if (a == other || !b.transient(a) || b.place(a).offset == b.place(other).offset) continue;
          b.place(a).offset = b.place(other).offset;
          expect_refused(b.plan, "'" + p.graph.value(a).name + "' over '" + p.graph.value(other).name + "'");
          ++count;
        }
    return count;
  });
}

TEST_P(Validate, RefusesAnOutputOverAnInputThatItsOpReadsAgain) {
  each_phase(
      [&](const Plan& plan, size_t phase) {
        int count = 0;
        for (const Node& node : plan.phases[phase].graph.nodes) {
          if (!op_def(node.op).in_place.empty() || node.body || is_view(node)) continue;
          for (ValueId in : node.inputs)
            for (ValueId out : node.outputs) {
              Broken b{plan, phase};
              if (!b.transient(out)) continue;
              b.place(out).offset = b.place(in).offset;
              expect_refused(b.plan, node.op + " writes over what it reads");
              ++count;
            }
        }
        return count;
      },
      0);
}

TEST_P(Validate, RefusesATransientOverAWeight) {
  each_phase(
      [&](const Plan& plan, size_t phase) {
        int count = 0;
        const PhasePlan& p = plan.phases[phase];
        for (const Node& node : p.graph.nodes)
          for (ValueId out : node.outputs) {
            Broken b{plan, phase};
            if (!b.transient(out) || is_view(node)) continue;
            for (ValueId in : p.graph.inputs) {
              if (!p.graph.value(in).persistent || p.graph.value(in).category != Category::kWeights) continue;
              b.place(out).offset = b.place(in).offset;
              expect_refused(b.plan, "'" + p.graph.value(out).name + "' over '" + p.graph.value(in).name + "'");
              ++count;
            }
          }
        return count;
      },
      0);
}

TEST_P(Validate, RefusesAnArenaThatIsNotWhatThePhasesNeed) {
  for (const Bytes change : {Bytes{-64}, Bytes{64}, Bytes{-1}, Bytes{4096}}) {
    each_phase([&](const Plan& plan, size_t phase) {
      Broken b{plan, phase};
      b.at().arena_bytes += change;
      Bytes highest = plan.persistent_bytes;
      for (const PhasePlan& p : b.plan.phases) highest = std::max(highest, p.arena_bytes);
      b.plan.arena_bytes = highest;
      expect_refused(b.plan, to_text(b.at().name) + "'s arena changed by " + std::to_string(change));
      return 1;
    });
    for (Plan plan : plans_) {
      plan.arena_bytes += change;
      expect_refused(plan, "the arena changed by " + std::to_string(change));
    }
  }
}

TEST_P(Validate, RefusesAReaderBeforeItsWriter) {
  each_phase(
      [&](const Plan& plan, size_t phase) {
        int count = 0;
        const Graph& graph = plan.phases[phase].graph;
        for (size_t n = 0; n < graph.nodes.size(); ++n)
          for (ValueId in : graph.nodes[n].inputs) {
            const NodeId writer = graph.value(in).producer;
            if (writer == kNone) continue;
            Broken b{plan, phase};
            Graph& g = b.at().graph;
            std::swap(g.nodes[n], g.nodes[static_cast<size_t>(writer)]);
            std::swap(b.at().nodes[n], b.at().nodes[static_cast<size_t>(writer)]);
            for (size_t k : {n, static_cast<size_t>(writer)})
              for (ValueId out : g.nodes[k].outputs) g.value(out).producer = static_cast<NodeId>(k);
            expect_refused(b.plan, "nodes " + std::to_string(writer) + " and " + std::to_string(n) + " swapped");
            ++count;
          }
        return count;
      },
      0);
}

TEST_P(Validate, RefusesReadingAWeightAfterItsUpdate) {
  int count = 0;
  for (const Plan& plan : plans_)
    for (size_t phase = 0; phase < plan.phases.size(); ++phase)
      for (const Update& update : plan.phases[phase].graph.updates) {
        // Make the last node read the old weight, which is overwritten by then.
        Broken b{plan, phase};
        const NodeId writer = b.graph().value(update.value).producer;
        const size_t last = b.graph().nodes.size() - 1;
        if (static_cast<size_t>(writer) == last || b.graph().nodes[last].inputs.empty()) continue;
        b.at().graph.nodes[last].inputs[0] = update.persistent;
        expect_refused(b.plan, "'" + b.graph().value(update.persistent).name + "' read after its update");
        ++count;
      }
  EXPECT_GE(count, 1);
}

TEST_P(Validate, RefusesLifetimesThatEndBeforeTheLastReader) {
  each_phase(
      [&](const Plan& plan, size_t phase) {
        int count = 0;
        const Graph& graph = plan.phases[phase].graph;
        for (size_t n = 0; n < graph.nodes.size(); ++n) {
          for (ValueId id : graph.nodes[n].inputs) {
            Broken b{plan, phase};
            if (!b.transient(id)) continue;
            b.place(id).last = static_cast<int>(n) - 1;
            expect_refused(b.plan, "'" + graph.value(id).name + "' ends before node " + std::to_string(n));
            ++count;
          }
          for (ValueId id : graph.nodes[n].outputs) {
            Broken b{plan, phase};
            if (!b.transient(id)) continue;
            b.place(id).first = static_cast<int>(n) + 1;
            b.place(id).last = std::max(b.place(id).last, static_cast<int>(n) + 1);
            expect_refused(b.plan, "'" + graph.value(id).name + "' begins after its writer");
            ++count;
          }
        }
        return count;
      },
      0);
}

TEST_P(Validate, RefusesAWorkspaceInTheWay) {
  each_phase([&](const Plan& plan, size_t phase) {
    int count = 0;
    const PhasePlan& p = plan.phases[phase];
    for (size_t n = 0; n < p.nodes.size(); ++n)
      for (const auto* list : {&p.graph.nodes[n].inputs, &p.graph.nodes[n].outputs})
        for (ValueId id : *list) {
          Broken b{plan, phase};
          PlannedNode& node = b.at().nodes[n];
          node.workspace_bytes = std::max<Bytes>(node.workspace_bytes, 1);
          node.workspace_offset = b.place(id).offset;
          expect_refused(b.plan, "workspace of node " + std::to_string(n) + " over '" + p.graph.value(id).name + "'");
          ++count;
        }
    for (size_t n = 0; n < p.nodes.size(); ++n) {
      for (const auto& [offset, bytes] : {std::pair<Bytes, Bytes>{0, 64},
                                          {-64, 64},
                                          {p.arena_bytes, 64},
                                          {p.arena_bytes - 64, 128},
                                          {p.arena_bytes, -64}}) {
        Broken b{plan, phase};
        b.at().nodes[n].workspace_offset = offset;
        b.at().nodes[n].workspace_bytes = bytes;
        expect_refused(b.plan, "workspace of " + std::to_string(bytes) + " bytes at " + std::to_string(offset));
      }
    }
    return count;
  });
}

TEST_P(Validate, RefusesSlotsThatOverlapOrDoNotMatch) {
  for (const Plan& plan : plans_) {
    for (size_t s = 0; s < plan.persistent.size(); ++s) {
      Plan moved = plan;
      moved.persistent[s].offset += 64;
      expect_refused(moved, "slot '" + plan.persistent[s].name + "' moved");
      Plan other = plan;
      other.persistent[s].type.shape = Shape{3, 5, 7, 11};
      expect_refused(other, "slot '" + plan.persistent[s].name + "' of another shape");
      Plan gone = plan;
      gone.persistent.erase(gone.persistent.begin() + static_cast<long>(s));
      expect_refused(gone, "slot '" + plan.persistent[s].name + "' gone");
    }
    Plan twice = plan;
    twice.persistent[1].offset = twice.persistent[0].offset;
    expect_refused(twice, "two slots in one place");
    Plan low = plan;
    low.persistent_bytes -= 64;
    expect_refused(low, "the last slot reaches into the transients");
  }
}

TEST_P(Validate, RefusesListsOfTheWrongLength) {
  each_phase([&](const Plan& plan, size_t phase) {
    Broken values{plan, phase}, nodes{plan, phase}, extra{plan, phase};
    values.at().values.pop_back();
    nodes.at().nodes.pop_back();
    extra.at().nodes.emplace_back();
    expect_refused(values.plan, "a place missing");
    expect_refused(nodes.plan, "a planned node missing");
    expect_refused(extra.plan, "a planned node too many");
    return 1;
  });
}

TEST_P(Validate, RefusesAPeakNodeThatIsNotThere) {
  each_phase([&](const Plan& plan, size_t phase) {
    for (const int node : {-1, static_cast<int>(plan.phases[phase].nodes.size()), 1 << 30}) {
      Broken b{plan, phase};
      b.at().peak_node = node;
      expect_refused(b.plan, "peak at node " + std::to_string(node));
    }
    return 1;
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Validate,
                         ::testing::Combine(::testing::Values("cnn.keras", "resnet.keras", "mlp.keras"),
                                            ::testing::ValuesIn(devices())),
                         [](const auto& which) {
                           const std::string file = std::get<0>(which.param);
                           return file.substr(0, file.find('.')) + "_" + std::get<1>(which.param);
                         });

}  // namespace
}  // namespace plimsoll::engine::testing
