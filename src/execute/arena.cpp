#include "execute/arena.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {
namespace {

const PersistentSlot* find(const std::vector<PersistentSlot>& slots, const std::string& name) {
  const auto at = std::find_if(slots.begin(), slots.end(), [&](const PersistentSlot& s) { return s.name == name; });
  return at == slots.end() ? nullptr : &*at;
}

// Accumulated gradients are not kept: they are set to zero at the start of a window and not needed after its end.
bool is_kept(const PersistentSlot& slot) {
  return slot.category != Category::kGradients;
}

}  // namespace

TensorView HostView::operator[](const std::string& name) const {
  const PersistentSlot* slot = find(*slots_, name);
  if (slot == nullptr) return {};
  return {slot->type, const_cast<std::byte*>(base_) + slot->offset};
}

Result<std::unique_ptr<Arena>> Arena::reserve(const Backend& backend, const Plan& plan) {
  std::unique_ptr<Arena> arena(new Arena(backend));
  for (const PlanMemory& wanted : plan.memories()) {
    PLIMSOLL_ASSIGN(arena->memories_[wanted.space], backend.reserve(wanted.space, wanted.bytes));
  }
  arena->memory_ = arena->memories_.at(Space::kDevice).get();
  arena->keep(plan);
  arena->use(plan);
  return arena;
}

std::vector<PersistentSlot> Arena::keep(const Plan& plan) {
  std::vector<PersistentSlot> added;
  for (const PersistentSlot& slot : plan.persistent)
    if (is_kept(slot) && find(kept_, slot.name) == nullptr) added.push_back(slot);
  kept_.insert(kept_.end(), added.begin(), added.end());
  std::sort(kept_.begin(), kept_.end(),
            [](const PersistentSlot& x, const PersistentSlot& y) { return x.offset < y.offset; });
  return added;
}

void Arena::use(const Plan& plan) {
  slots_ = kept_;
  for (const PersistentSlot& slot : plan.persistent)
    if (!is_kept(slot)) slots_.push_back(slot);
  persistent_bytes_ = std::max(end_of(slots_), plan.persistent_bytes);
}

const PersistentSlot* Arena::slot(const std::string& name) const {
  return find(slots_, name);
}

Status Arena::check(const Plan& plan) const {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kBadPlan, "this plan was made for another arena: " + what);
  };
  const Bytes end = end_of(kept_);
  if (plan.persistent_bytes < end)
    return wrong(fmt::format("it has {} for the persistent values, which need {}", format_bytes(plan.persistent_bytes),
                             format_bytes(end)));
  for (const PersistentSlot& wanted : plan.persistent) {
    const PersistentSlot* here = find(kept_, wanted.name);
    if (here == nullptr ? wanted.offset < end : here->offset != wanted.offset || here->type != wanted.type)
      return wrong(fmt::format("'{}' has another place or another type", wanted.name));
  }
  return {};
}

Result<bool> Arena::make_room(const Plan& plan, bool shrink) {
  PLIMSOLL_TRY(check(plan));
  const std::byte* const before = memory_->at(0);
  bool moved = false;
  for (auto at = memories_.begin();
       at != memories_.end();) {  // no value in another memory than the device's outlives a phase
    const Bytes wanted = plan.bytes_in(at->first);
    const bool other = shrink ? at->second->bytes() != wanted : at->second->bytes() < wanted;
    const bool drop = at->first != Space::kDevice && other;
    moved = moved || drop;
    at = drop ? memories_.erase(at) : std::next(at);
  }
  for (const PlanMemory& wanted : plan.memories()) {
    auto& memory = memories_[wanted.space];
    if (memory != nullptr) continue;
    PLIMSOLL_ASSIGN(memory, backend_.reserve(wanted.space, wanted.bytes));
  }
  if (plan.arena_bytes > memory_->bytes() || (shrink && plan.arena_bytes < memory_->bytes()))
    PLIMSOLL_TRY(memory_->resize(plan.arena_bytes, end_of(kept_)));
  PLIMSOLL_TRY(memory_->commit(plan.persistent_bytes));
  for (const PersistentSlot& slot : keep(plan))  // other plans had transient values there
    PLIMSOLL_TRY(memory_->fill(slot.offset, std::byte{0}, slot.bytes()));
  return moved || memory_->at(0) != before;
}

Result<HostView> Arena::look() const {
  if (memory_->host_visible()) return HostView(slots_, memory_->at(0));
  std::vector<std::byte> copy(static_cast<size_t>(persistent_bytes_));
  PLIMSOLL_TRY(memory_->read(0, copy.data(), persistent_bytes_));
  return HostView(slots_, std::move(copy));
}

Status Arena::store(const std::string& name, const std::function<Status(const TensorView&)>& write) {
  const PersistentSlot* found = slot(name);
  if (found == nullptr) return fail(ErrorCode::kBadPlan, fmt::format("the plan has no persistent value '{}'", name));
  if (memory_->host_visible()) return write({found->type, memory_->at(found->offset)});
  std::vector<std::byte> staged(static_cast<size_t>(found->type.bytes()));
  PLIMSOLL_TRY(write({found->type, staged.data()}));
  return memory_->write(found->offset, staged.data(), found->type.bytes());
}

void* Arena::address(const Placement& place) const {
  return place.offset < 0 ? nullptr : memories_.at(place.space)->at(place.offset);
}

}  // namespace plimsoll::engine
