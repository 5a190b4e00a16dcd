// Which tensors have masks, which calls read them, and what they mean for the losses.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "model/calls.h"
#include "model/loss_formulas.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

class MaskPass {
 public:
  MaskPass(const LayerTree& tree, LayerProgram& program, Issues& issues)
      : tree_(tree), program_(program), issues_(issues) {}

  void run() {
    std::vector<size_t> order(program_.calls.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return program_.calls[a].rank < program_.calls[b].rank; });
    for (size_t i : order) visit(program_.calls[i]);
  }

 private:
  void visit(LayerCall& call) {
    const Layer& layer = tree_.layers[call.layer].at(call.node);
    call.given_masks.resize(call.inputs.size(), kNoMask);
    call.masks.clear();
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      call.masks.push_back(program_.masks[call.inputs[i]]);
      if (call.given_masks[i] != kNoMask) check_given(call, i);
    }
    program_.masks[call.outputs[0]] = output_mask(layer, call);
    for (size_t i : layer.unmasks) program_.masks[call.inputs[i]] = kNoMask;
  }

  static bool masked(const LayerCall& call, size_t i) {
    return call.masks[i] != kNoMask || call.given_masks[i] != kNoMask;
  }

  void unknown(const LayerCall& call, const std::string& what) {
    const LayerObject& object = tree_.layers[call.layer];
    issues_.unknown(fmt::format("layer '{}' ({}): {}", object.path, object.class_name, what));
  }

  // A mask has one element per row of its tensor.
  void check_given(const LayerCall& call, size_t i) {
    const Shape &x = program_.tensors[call.inputs[i]], &mask = program_.tensors[call.given_masks[i]];
    if (x.rank() == mask.rank() + 1 && std::equal(mask.dims.begin(), mask.dims.end(), x.dims.begin())) return;
    unknown(call, fmt::format("a mask [{}] for an input [{}]", to_text(mask), to_text(x)));
  }

  // Returns the tensor whose call makes the mask of output 0.
  size_t output_mask(const Layer& layer, const LayerCall& call) {
    const size_t output = call.outputs[0];
    bool any = false, all = true;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      any = any || masked(call, i);
      all = all && masked(call, i);
    }
    switch (layer.masking) {
      case Masking::kMakes:
        return output;
      case Masking::kPasses:
        return call.given_masks[layer.passed_mask] != kNoMask ? output : call.masks[layer.passed_mask];
      case Masking::kMerges:
        // If an input is broadcast, its mask would have to be broadcast too.
        for (size_t t : call.inputs)
          if (any && program_.tensors[t] != program_.tensors[output])
            unknown(call, "masked inputs of different shapes");
        return all ? output : kNoMask;
      case Masking::kJoins:
        return any ? output : kNoMask;
      case Masking::kChanges:
        if (any) unknown(call, "its input has a mask");
        return kNoMask;
      case Masking::kStops:
      case Masking::kReads:
        break;
    }
    return kNoMask;
  }

  const LayerTree& tree_;
  LayerProgram& program_;
  Issues& issues_;
};

// Whether the rows of this output's loss can have its mask.
std::string refused_mask(const Loss& loss, const Shape& sample, const Shape& masked) {
  if (!has_last_axis_rows(loss) || target_kind(loss) == TargetKind::kSequence)
    return fmt::format("its loss {} with a mask", function_name(loss));
  const std::vector<int64_t> rows(sample.dims.begin(), sample.dims.end() - (sample.rank() > 0 ? 1 : 0)),
      of_mask(masked.dims.begin(), masked.dims.end() - (masked.rank() > 0 ? 1 : 0));
  if (rows == of_mask) return "";
  return fmt::format("its loss has rows [{}], but its mask is [{}]", fmt::join(rows, ","), fmt::join(of_mask, ","));
}

}  // namespace

void resolve_masks(const LayerTree& tree, LayerProgram& program, Issues& issues) {
  MaskPass(tree, program, issues).run();
}

bool counts_rows(const Loss& loss) {
  return (loss.ignored_class && loss.reduction != Reduction::kSum) || loss.reduction == Reduction::kWeightedMean ||
         (target_kind(loss) == TargetKind::kGroups && loss.reduction == Reduction::kMean);
}

void check_loss_masks(const LayerTree& tree, LayerProgram& program, const std::vector<std::string>& names,
                      Issues& issues) {
  const auto& losses = program.objective.losses;
  std::set<size_t> counts;  // what the losses are divided by: the rows of a mask, other weights, or all rows
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!losses[i]) continue;
    const Loss& loss = *losses[i];
    const Shape& sample = program.tensors[program.outputs[i]];
    if (loss.reduction == Reduction::kSum && reduces_batch(loss, sample) &&
        loss_axes(loss, sample.rank() + 1).size() <= sample.rank())
      issues.unknown(fmt::format("output '{}': its loss {} with reduction=sum over the batch and some of the axes",
                                 names[i], function_name(loss)));
    const size_t mask = program.masks[program.outputs[i]];
    const bool own = counts_rows(loss);
    counts.insert(own ? kNoMask - 1 - i : loss.reduction == Reduction::kSum ? kNoMask : mask);
    if (mask == kNoMask) continue;
    if (const std::string why = refused_mask(loss, sample, program.tensors[mask]); !why.empty())
      issues.unknown(fmt::format("output '{}': {}", names[i], why));
  }
  // One denominator can be applied at the end of a window, to the sum of all gradients. Several cannot, nor one beside
  // penalties on activities, which it must not change.
  const bool counted = !counts.empty() && counts != std::set<size_t>{kNoMask};
  const bool penalized = std::any_of(program.calls.begin(), program.calls.end(), [&](const LayerCall& call) {
    return static_cast<bool>(tree.layers[call.layer].layer.activity);
  });
  program.several_masks = counted && (counts.size() > 1 || penalized);
}

}  // namespace plimsoll::engine
