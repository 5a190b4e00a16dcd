// A simulated GPU on top of a host device, for machines without a GPU. The session feeds it, reads back from it and
// commits memory on it as on a GPU. Accessing memory that was not committed faults. The test can reduce its free
// memory, or make the whole device fail.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "device/failures.h"
#include "device/forwarding_device.h"
#include "device/host_memory.h"
#include "device/kernel.h"

namespace plimsoll::engine::testing {

struct PretendState {
  Bytes room = std::numeric_limits<Bytes>::max();  // most bytes that the arena may take
  Bytes before = 0;                                // held by the program before the device was opened
  Bytes mapped = 0;                                // bytes of the arena
  Bytes staged = 0;                                // bytes of the staged batch
  Bytes peak = 0;                                  // largest sum of the three above
  std::vector<Bytes> commits;                      // the new end of the arena, each time more memory was taken

  Bytes held() const { return before + mapped + staged; }
  void count() { peak = std::max(peak, held()); }

  // The bytes that the session passed to check_room().
  Bytes asked_room = 0;
  bool lost = false;
  Failures failures;  // filled by the test, as by a kernel that could not start
};

namespace pretend {

inline Status alive(PretendState& state) {
  if (!state.lost) return state.failures.take();
  return fail(ErrorCode::kDeviceLost, "the pretended device is lost");
}

class PretendMemory final : public Memory {
 public:
  PretendMemory(std::shared_ptr<PretendState> state, Bytes bytes) : state_(std::move(state)), bytes_(bytes) { map(); }
  ~PretendMemory() override {
    munmap(base_, static_cast<size_t>(reserved_));
    state_->mapped = 0;
  }

  std::byte* at(Bytes offset) const override { return base_ + offset; }
  bool host_visible() const override { return false; }
  Bytes bytes() const override { return bytes_; }
  Bytes held_bytes() const override { return state_->mapped; }

  Status resize(Bytes bytes, Bytes keep) override {
    std::vector<std::byte> kept(at(0), at(0) + keep);
    munmap(base_, static_cast<size_t>(reserved_));
    bytes_ = bytes;
    map();
    PLIMSOLL_TRY(commit(keep));
    return write(0, kept.data(), keep);
  }
  Status commit(Bytes bytes) override {
    const Bytes end = whole_pages(bytes + kGuard);
    if (end <= state_->mapped) return {};
    if (end > state_->room) return fail(ErrorCode::kOutOfMemory, "the pretended device has no room");
    mprotect(base_, static_cast<size_t>(end), PROT_READ | PROT_WRITE);
    state_->mapped = end;
    state_->count();
    state_->commits.push_back(end);
    return {};
  }
  void trim(Bytes bytes) override {
    const Bytes end = whole_pages(bytes + kGuard);
    if (end >= state_->mapped) return;
    const auto size = static_cast<size_t>(state_->mapped - end);
    madvise(base_ + end, size, MADV_DONTNEED);
    mprotect(base_ + end, size, PROT_NONE);
    state_->mapped = end;
  }

  Status write(Bytes offset, const void* from, Bytes bytes) override {
    std::memcpy(at(offset), from, static_cast<size_t>(bytes));
    return alive(*state_);
  }
  Status read(Bytes offset, void* to, Bytes bytes) const override {
    std::memcpy(to, at(offset), static_cast<size_t>(bytes));
    return alive(*state_);
  }
  Status fill(Bytes offset, std::byte value, Bytes bytes) override {
    std::memset(at(offset), static_cast<int>(value), static_cast<size_t>(bytes));
    return alive(*state_);
  }
  void poke(std::span<const Poke> pokes) override {
    for (const Poke& poke : pokes) std::memcpy(at(poke.offset), poke.data, static_cast<size_t>(poke.bytes));
  }

 private:
  static Bytes whole_pages(Bytes bytes) { return align_up(bytes, sysconf(_SC_PAGESIZE)); }
  void map() {
    reserved_ = whole_pages(bytes_ + kGuard);
    state_->mapped = 0;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, static_cast<size_t>(reserved_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }

  std::shared_ptr<PretendState> state_;
  Bytes bytes_, reserved_ = 0;
  std::byte* base_ = nullptr;
};

class PretendFeed final : public Feed {
 public:
  PretendFeed(std::shared_ptr<PretendState> state, Bytes bytes)
      : state_(std::move(state)), batch_(static_cast<size_t>(bytes)) {
    state_->staged = bytes;
    state_->count();
  }
  ~PretendFeed() override { state_->staged = 0; }

  Result<std::span<void* const>> acquire(std::span<const Slot> slots) override {
    slots_ = slots;
    hosts_.clear();
    Bytes offset = 0;
    for (const Slot& slot : slots) {
      hosts_.push_back(slot.device == nullptr ? nullptr : batch_.data() + offset);
      offset += align_up(slot.bytes);
    }
    return std::span<void* const>(hosts_);
  }
  Status submit() override { return again(); }
  Status again() override {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].device != nullptr) std::memcpy(slots_[i].device, hosts_[i], static_cast<size_t>(slots_[i].bytes));
    return alive(*state_);
  }
  Bytes device_bytes() const override { return static_cast<Bytes>(batch_.size()); }

 private:
  std::shared_ptr<PretendState> state_;
  std::vector<std::byte> batch_;
  std::span<const Slot> slots_;
  std::vector<void*> hosts_;
};

class PretendReadback final : public Readback {
 public:
  PretendReadback(std::shared_ptr<PretendState> state, const std::byte* from, Bytes bytes)
      : state_(std::move(state)), from_(from), bytes_(static_cast<size_t>(bytes)) {}

  Status request() override {
    to_[requested_++ % 2].assign(from_, from_ + bytes_);
    return {};
  }
  Result<std::span<const std::byte>> wait() override {
    PLIMSOLL_TRY(alive(*state_));
    return std::span<const std::byte>(to_[waited_++ % 2]);
  }

 private:
  std::shared_ptr<PretendState> state_;
  const std::byte* from_;
  size_t bytes_;
  std::vector<std::byte> to_[2];
  size_t requested_ = 0, waited_ = 0;
};

class OwnMemoryDevice final : public ForwardingDevice {
 public:
  explicit OwnMemoryDevice(const Device& device) : ForwardingDevice(device), info_(device.info()) {
    info_.own_memory = true;
    info_.memory = "gpu:0";
  }
  const DeviceInfo& info() const override { return info_; }

 private:
  DeviceInfo info_;
};

}  // namespace pretend

class PretendGpu final : public Backend {
 public:
  PretendGpu(std::unique_ptr<Backend> host, std::shared_ptr<PretendState> state)
      : host_(std::move(host)), device_(host_->device()), state_(std::move(state)) {}

  const Device& device() const override { return device_; }
  Status check_room(Bytes bytes) const override {
    state_->asked_room = bytes;
    return {};
  }
  Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const override {
    if (space == Space::kHost) return HostMemory::reserve(bytes);
    return std::make_unique<pretend::PretendMemory>(state_, bytes);
  }
  Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const override { return host_->bind(node); }
  Bytes held_before_bytes() const override { return state_->before; }
  Bytes held_bytes() const override { return state_->held(); }
  Bytes peak_held_bytes() const override { return state_->peak; }
  std::string counted_by() const override { return "itself"; }
  Status finish() const override { return pretend::alive(*state_); }
  Result<std::unique_ptr<Feed>> open_feed(Bytes bytes) const override {
    return std::make_unique<pretend::PretendFeed>(state_, bytes);
  }
  Result<std::unique_ptr<Readback>> open_readback(const Memory& memory, Bytes offset, Bytes bytes) const override {
    return std::make_unique<pretend::PretendReadback>(state_, memory.at(offset), bytes);
  }

 private:
  std::unique_ptr<Backend> host_;
  pretend::OwnMemoryDevice device_;
  std::shared_ptr<PretendState> state_;
};

}  // namespace plimsoll::engine::testing
