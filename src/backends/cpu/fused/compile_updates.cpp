// Tile forms of what runs after the gradients: clipping, penalties, optimizers. A comment after a signature lists the
// node's inputs (and -> outputs); `?` marks optional ones.
#include <cmath>

#include "backends/cpu/fused/compiler.h"

namespace plimsoll::engine::cpu {
namespace {

void compile_clip_value(Compiler& c) {
  c.emit(TileOp::k_clip, {c.full(0)}, {c.result()}).f[0] = static_cast<float>(c.attrs().real("limit"));
}

void compile_l1_l2_grad(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_l1_l2_grad, {c.full(0), c.whole(1)}, {c.result()});
  instruction.f[0] = static_cast<float>(c.attrs().real_or("l1", 0));
  instruction.f[1] = static_cast<float>(2.0 * c.attrs().real_or("l2", 0));
}

void compile_sgd(Compiler& c) {  // w, g, learning_rate, momentum state?
  const bool stateful = c.node().inputs.size() == 4;
  const TileOp op = !stateful                    ? TileOp::k_sgd
                    : c.attrs().flag("nesterov") ? TileOp::k_sgd_nesterov
                                                 : TileOp::k_sgd_momentum;
  std::vector<Operand> in = {c.full(0), c.full(1), c.whole(2)}, out;
  if (stateful) in.push_back(c.full(3));
  out.push_back(c.result(0));
  if (stateful) out.push_back(c.result(1));
  auto& instruction = c.emit(op, std::move(in), std::move(out), 2);
  instruction.f[0] = static_cast<float>(c.attrs().real_or("momentum", 0));
  instruction.f[1] = static_cast<float>(c.attrs().real_or("weight_decay", 0));
}

void compile_adam(Compiler& c) {  // w, g, m, v, learning_rate, iteration
  const double b1 = c.attrs().real("beta_1"), b2 = c.attrs().real("beta_2"),
               decay = c.attrs().real_or("weight_decay", 0);
  const int rate = c.raw(4), iteration = c.raw(5);
  const Operand alpha = c.scalar([=](Inputs inputs, float* result) {
    const auto t = static_cast<double>(*static_cast<const int64_t*>(inputs[static_cast<size_t>(iteration)]));
    const auto learning_rate = static_cast<double>(*floats(inputs, rate));
    *result = static_cast<float>(learning_rate * std::sqrt(1.0 - std::pow(b2, t)) / (1.0 - std::pow(b1, t)));
  });
  const Operand shrink = c.scalar([=](Inputs inputs, float* result) {
    *result = static_cast<float>(static_cast<double>(*floats(inputs, rate)) * decay);
  });
  auto& instruction = c.emit(TileOp::k_adam, {c.full(0), c.full(1), c.full(2), c.full(3), alpha, shrink},
                             {c.result(0), c.result(1), c.result(2)}, 12);
  instruction.f[0] = static_cast<float>(1.0 - b1);
  instruction.f[1] = static_cast<float>(1.0 - b2);
  instruction.f[2] = static_cast<float>(c.attrs().real("epsilon"));
}

void compile_unscale(Compiler& c) {
  c.emit(TileOp::k_unscale, {c.full(0), c.whole(1)}, {c.result()});
}

void compile_keep_if(Compiler& c) {
  c.emit(TileOp::k_keep_if, {c.full(0), c.full(1), c.whole(2)}, {c.result()});
}

constexpr TileForm kForms[] = {
    {"clip_value", compile_clip_value},
    {"l1_l2_grad", compile_l1_l2_grad},
    {"sgd", compile_sgd},
    {"adam", compile_adam},
    {"unscale", compile_unscale},
    {"keep_if", compile_keep_if},
};

}  // namespace

std::span<const TileForm> update_forms() {
  return kForms;
}

}  // namespace plimsoll::engine::cpu
