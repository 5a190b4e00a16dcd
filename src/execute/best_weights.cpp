#include "execute/best_weights.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"
#include "execute/checkpoint_folder.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kFormat = "plimsoll.best/1";

template <typename Use>
void for_each_weight(const Session& session, Use use) {
  for (const Weight& weight : session.model().weights())
    if (const PersistentSlot* slot = session.slot(weight.name)) use(*slot);
}

}  // namespace

std::string best_weights_beside(const std::string& saved) {
  if (!saved.empty()) return saved;
  const char* chosen = std::getenv("TMPDIR");
  return std::string(chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp") + "/plimsoll-best";
}

std::string BestWeights::path_of(int64_t step) const {
  return aside_ ? aside_->path() : best_weights_path(folder_, step);
}

Status BestWeights::keep(const Session& session, int64_t step) {
  if (!folder_.empty()) {
    PLIMSOLL_TRY(make_folder(folder_));
  } else if (!aside_) {
    PLIMSOLL_ASSIGN(aside_, PathAside::create(best_weights_beside(beside_)));
  }
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<CheckpointTensor> tensors;
  for_each_weight(session, [&](const PersistentSlot& slot) {
    tensors.push_back({slot.name, slot.type, values[slot.name].data});
  });
  return write_checkpoint(path_of(step), json_object({{"format", kFormat}, {"steps", step}}), tensors);
}

Status BestWeights::restore(Session& session, int64_t step) const {
  PLIMSOLL_ASSIGN(const Checkpoint kept, open_checkpoint(path_of(step)));
  Status status;
  for_each_weight(session, [&](const PersistentSlot& slot) {
    if (!status) return;
    status = session.store(slot.name,
                           [&](const TensorView& view) { return kept.read_into(slot.name, slot.type, view.data); });
  });
  return status;
}

Bytes expected_best_weights_bytes(const Session& session) {
  Bytes bytes = 4 * kKiB;
  for_each_weight(session, [&](const PersistentSlot& slot) { bytes += align_up(slot.type.bytes()) + 256; });
  return bytes;
}

}  // namespace plimsoll::engine
