// Memory that several plans can share in turn.
//
// Persistent values (weights, optimizer state, statistics, step scalars) are at the bottom, in one layout for all plans
// that run in the arena. Each plan places its transient values above them. So several plans can be bound to one arena
// and run in turn. Plans change only between windows, because accumulated gradients, which are live for one window,
// have the place that the plan in use gives them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/kernel.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// Persistent values for the host to read: in the arena itself if it is host-visible, else a copy.
class HostView {
 public:
  HostView(const std::vector<PersistentSlot>& slots, const std::byte* base) : slots_(&slots), base_(base) {}
  HostView(const std::vector<PersistentSlot>& slots, std::vector<std::byte> copy)
      : slots_(&slots), copy_(std::move(copy)), base_(copy_.data()) {}
  HostView(HostView&&) = default;

  TensorView operator[](const std::string& name) const;  // its data is null if there is no such value
  const std::byte* data() const { return base_; }        // all persistent values

 private:
  const std::vector<PersistentSlot>* slots_;
  std::vector<std::byte> copy_;
  const std::byte* base_;
};

class Arena {
 public:
  // Reserves memory for a plan. Persistent values are zero.
  static Result<std::unique_ptr<Arena>> reserve(const Backend& backend, const Plan& plan);

  // Fails with kBadPlan if the plan was made for another arena: it has another place for a kept value, or puts a
  // transient value where the arena keeps one.
  Status check(const Plan& plan) const;
  // Makes room for a plan; with `shrink` also releases memory that the plan does not need. Adds new persistent values
  // as zeros and keeps all others. No work may be enqueued. Returns whether addresses changed; then every plan bound
  // here must be bound again.
  Result<bool> make_room(const Plan& plan, bool shrink);
  // Forgets the persistent values that make_room() added after kept() was `kept`, because their plan is dropped.
  void keep_only(std::vector<PersistentSlot> kept) { kept_ = std::move(kept); }
  // From now on persistent() has the accumulated gradients of this plan. Call make_room() for it first.
  void use(const Plan& plan);

  // The values whose places every plan for this arena must keep, sorted by offset.
  const std::vector<PersistentSlot>& kept() const { return kept_; }
  const std::vector<PersistentSlot>& persistent() const { return slots_; }
  Bytes persistent_bytes() const { return persistent_bytes_; }
  const PersistentSlot* slot(const std::string& name) const;
  Result<HostView> look() const;
  // Sets a persistent value: `write` fills a buffer, which becomes the new value.
  Status store(const std::string& name, const std::function<Status(const TensorView&)>& write);

  Memory& memory() const { return *memory_; }
  void* address(const Placement& place) const;  // null if it has no place

 private:
  explicit Arena(const Backend& backend) : backend_(backend) {}
  std::vector<PersistentSlot> keep(const Plan& plan);  // returns the values that were not kept before

  const Backend& backend_;
  std::map<Space, std::unique_ptr<Memory>> memories_;
  Memory* memory_ = nullptr;  // the device's memory, which holds the persistent values
  std::vector<PersistentSlot> kept_, slots_;
  Bytes persistent_bytes_ = 0;  // of the plan in use, or of the kept values
};

}  // namespace plimsoll::engine
