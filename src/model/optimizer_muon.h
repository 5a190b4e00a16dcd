// Muon: matrices move by their orthogonalised momentum, all other weights as in Adam (keras/src/optimizers/muon.py).
#pragma once

#include "model/optimizer_classes.h"

namespace plimsoll::engine {

std::vector<OptimizerOption> muon_options();
std::string check_muon(const Optimizer& optimizer);
std::vector<StateSlot> muon_state(const Optimizer& optimizer, const NamedShape& weight);
Updated update_muon(const UpdateCall& call);

// The op `adam` on the state {m, v}.
Updated plain_adam(const UpdateCall& call, const Expression& rate, double beta_1, double beta_2, double epsilon);

}  // namespace plimsoll::engine
