#include "execute/state_file.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/json_numbers.h"
#include "execute/callbacks.h"
#include "formats/checkpoint/checkpoint.h"

namespace plimsoll::engine {
namespace {

// The file leaves out step scalars, because they are set before each use, and accumulated gradients, because they exist
// only inside a window.
std::vector<const PersistentSlot*> kept_slots(const Session& session) {
  std::vector<const PersistentSlot*> slots;
  for (const PersistentSlot& slot : session.kept())
    if (slot.category != Category::kInputs) slots.push_back(&slot);
  return slots;
}

tl::unexpected<Error> bad(const std::string& path, std::string_view what) {
  return fail(Error{ErrorCode::kBadCheckpoint,
                    fmt::format("{}: {}", path, what),
                    {},
                    {"use a file that save_checkpoint() of the same model wrote"}});
}

}  // namespace

Status write_state(const Session& session, const OptimizerState& state, const nlohmann::json& identity,
                   const std::string& path) {
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<CheckpointTensor> tensors;
  for (const PersistentSlot* slot : kept_slots(session))
    tensors.push_back({slot->name, slot->type, values[slot->name].data});
  return write_checkpoint(path,
                          json_object({{"format", kStateFormat},
                                       {"identity", identity},
                                       {"iteration", state.iteration},
                                       {"learning_rate", number_to_json(state.learning_rate)}}),
                          tensors);
}

Result<OptimizerState> read_state(Session& session, const nlohmann::json& identity, const std::string& path) {
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  const nlohmann::json& header = checkpoint.header();
  if (!header.is_object() || header.value("format", nlohmann::json()) != kStateFormat)
    return bad(path, "it is not the state of a model");
  if (header.value("identity", nlohmann::json()) != identity) return bad(path, "it is the state of another model");
  OptimizerState state;
  const auto iteration = whole_number(header.value("iteration", nlohmann::json()), 0, kMostSteps);
  const auto rate = number_from_json(header.value("learning_rate", nlohmann::json()));
  if (!iteration || !rate || !std::isfinite(*rate))
    return bad(path, "its header has no valid optimizer step or learning rate");
  state.iteration = *iteration;
  state.learning_rate = *rate;
  const auto slots = kept_slots(session);
  for (const PersistentSlot* slot : slots) {
    const Checkpoint::Entry* entry = checkpoint.find(slot->name);
    if (entry == nullptr || !(entry->type == slot->type))
      return bad(path, fmt::format("it has no '{}' of this model's shape", slot->name));
  }
  PLIMSOLL_TRY(checkpoint.verify());
  for (const PersistentSlot* slot : slots)
    PLIMSOLL_TRY(session.store(
        slot->name, [&](const TensorView& view) { return checkpoint.read_into(slot->name, slot->type, view.data); }));
  return state;
}

}  // namespace plimsoll::engine
