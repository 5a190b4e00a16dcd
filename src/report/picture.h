// The memory of a training step over time: what a picture of a plan shows. It is read off the plan, so its numbers are
// the plan's.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::engine {

inline constexpr size_t kCategories = static_cast<size_t>(Category::kFragmentation) + 1;

// One operation, in the order in which they run.
struct PictureStep {
  std::string op, layer;
  size_t phase = 0;  // index into Picture::phases
  Stage stage = Stage::kForward;
  double seconds = 0;
  std::array<Bytes, kCategories> live = {};  // at this operation, by category; without fragmentation
  Bytes total() const;
};

// A tensor or a workspace: a range of the arena for a range of operations, both ends included.
struct PictureValue {
  std::string name, layer;
  Category category = Category::kActivations;
  int first = 0, last = 0;
  Bytes offset = 0, bytes = 0;
};

struct PicturePhase {
  std::string name;
  int64_t runs = 1;  // per step
  int first = 0, last = 0;
};

struct Picture {
  std::vector<PicturePhase> phases;
  std::vector<PictureStep> steps;
  std::vector<PictureValue> values;
  Bytes arena_bytes = 0;
  size_t peak = 0;  // index of the step with the most live bytes
};

// The phases of one training step (of evaluation or prediction in a plan without training), each drawn once.
Picture picture_of(const Plan& plan);

}  // namespace plimsoll::engine
