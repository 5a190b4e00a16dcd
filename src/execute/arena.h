// Memory that outlives a plan.
//
// Persistent values (weights, optimizer state, statistics, step scalars) lie at its bottom, in one layout for all plans
// that run in it. Above them each plan places its transients as it likes, so several plans can be bound in one arena
// and run in turn. Plans change between windows only: accumulated gradients, which live for one window, lie where the
// plan in use has them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/kernel.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// Persistent values as the host sees them: in place where the arena is host-visible, else copied out.
class HostView {
 public:
  HostView(const std::vector<PersistentSlot>& slots, const std::byte* base) : slots_(&slots), base_(base) {}
  HostView(const std::vector<PersistentSlot>& slots, std::vector<std::byte> copy)
      : slots_(&slots), copy_(std::move(copy)), base_(copy_.data()) {}
  HostView(HostView&&) = default;

  TensorView operator[](const std::string& name) const;  // without data where there is no such value
  const std::byte* data() const { return base_; }        // all of them

 private:
  const std::vector<PersistentSlot>* slots_;
  std::vector<std::byte> copy_;
  const std::byte* base_;
};

class Arena {
 public:
  // Room for a plan. Persistent values are zero.
  static Result<std::unique_ptr<Arena>> reserve(const Backend& backend, const Plan& plan);

  // kBadPlan where a plan places a value elsewhere than this arena does, or a transient where a value is kept: it was
  // made for another arena.
  Status check(const Plan& plan) const;
  // Makes room for a plan, or gives room back with `shrink`; adds the persistent values that are new, as zeros, and
  // keeps all others. Nothing may be under way. Returns whether addresses changed: every plan bound here is then bound
  // again.
  Result<bool> make_room(const Plan& plan, bool shrink);
  // Forgets the persistent values that make_room() has added since kept() was `kept`: the plan that has them is
  // dropped.
  void keep_only(std::vector<PersistentSlot> kept) { kept_ = std::move(kept); }
  // From now on persistent() has the accumulated gradients of this plan, for which room was made.
  void use(const Plan& plan);

  // What every plan made for this arena must leave in its place, by offset.
  const std::vector<PersistentSlot>& kept() const { return kept_; }
  const std::vector<PersistentSlot>& persistent() const { return slots_; }
  Bytes persistent_bytes() const { return persistent_bytes_; }
  const PersistentSlot* slot(const std::string& name) const;
  Result<HostView> look() const;
  // `write` fills the value it is shown, which then is the persistent value's.
  Status store(const std::string& name, const std::function<Status(const TensorView&)>& write);

  Memory& memory() const { return *memory_; }
  void* address(const Placement& place) const;  // null for what lies nowhere

 private:
  explicit Arena(const Backend& backend) : backend_(backend) {}
  std::vector<PersistentSlot> keep(const Plan& plan);  // the values that were not kept before

  const Backend& backend_;
  std::map<Space, std::unique_ptr<Memory>> memories_;
  Memory* memory_ = nullptr;  // of them, the device's: persistent values lie there
  std::vector<PersistentSlot> kept_, slots_;
  Bytes persistent_bytes_ = 0;  // of the plan in use, or of what is kept
};

}  // namespace plimsoll::engine
