#include "backends/cuda/driver/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/mapped_range.h"
#include "backends/cuda/driver/room.h"
#include "device/host_memory.h"

namespace plimsoll::engine::cuda {
namespace {

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(Context& context) : context_(context) {}
  ~DeviceMemory() override {
    synchronize();
    release();
  }

  // Allocates one block, or, with memory growth, reserves a range of addresses into which memory is mapped later.
  Status take(Bytes bytes) {
    if (context_.card.memory_growth) {
      PLIMSOLL_ASSIGN(range_, MappedRange::reserve(context_, bytes + kGuard));
      base_ = range_->base();
    } else {
      const cudaError_t code = cudaMalloc(reinterpret_cast<void**>(&base_), static_cast<size_t>(bytes + kGuard));
      if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return fail(no_room(context_, bytes, "for the arena"));
      }
      PLIMSOLL_CUDA(code);
    }
    bytes_ = bytes;
    return {};
  }

  // Old and new size together may not fit on the card, so the kept bytes are copied through host memory.
  Status resize(Bytes bytes, Bytes keep) override {
    std::vector<std::byte> kept(static_cast<size_t>(keep));
    PLIMSOLL_TRY(read(0, kept.data(), keep));
    synchronize();
    const Bytes before = bytes_;
    release();
    const Status taken = take(bytes);
    if (!taken) PLIMSOLL_TRY(take(before));
    PLIMSOLL_TRY(commit(keep));
    PLIMSOLL_TRY(write(0, kept.data(), keep));
    return taken;
  }

  std::byte* at(Bytes offset) const override { return base_ + offset; }
  bool host_visible() const override { return false; }
  Bytes bytes() const override { return bytes_; }
  Bytes held_bytes() const override {
    constexpr Bytes kGranularity = 2 * kMiB;  // the driver allocates in units of this size
    return range_ != nullptr ? range_->mapped() : align_up(bytes_ + kGuard, kGranularity);
  }

  Status commit(Bytes bytes) override {
    assert(bytes <= bytes_);
    return range_ != nullptr ? range_->grow(bytes + kGuard) : Status{};
  }
  void trim(Bytes bytes) override {
    if (range_ == nullptr) return;
    synchronize();
    range_->shrink(bytes + kGuard);
  }

  Status write(Bytes offset, const void* from, Bytes bytes) override {
    return copy(at(offset), from, bytes, cudaMemcpyHostToDevice);
  }
  Status read(Bytes offset, void* to, Bytes bytes) const override {
    return copy(to, at(offset), bytes, cudaMemcpyDeviceToHost);
  }
  Status fill(Bytes offset, std::byte value, Bytes bytes) override {
    PLIMSOLL_CUDA(cudaMemsetAsync(at(offset), static_cast<int>(value), static_cast<size_t>(bytes), context_.stream));
    PLIMSOLL_CUDA(cudaStreamSynchronize(context_.stream));
    return {};
  }
  void poke(std::span<const Poke> pokes) override {
    while (!pokes.empty()) {
      const auto some = pokes.first(std::min<size_t>(pokes.size(), kMostPokes));
      launch_pokes(base_, some, context_.stream);
      note_enqueued(context_, "the upload of a step's scalars");
      pokes = pokes.subspan(some.size());
    }
  }

 private:
  void release() {
    if (range_ == nullptr) cudaFree(base_);
    range_.reset();
    base_ = nullptr;
  }
  void synchronize() const {
    cudaStreamSynchronize(context_.copies);
    cudaStreamSynchronize(context_.stream);
  }
  Status copy(void* to, const void* from, Bytes bytes, cudaMemcpyKind kind) const {
    PLIMSOLL_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, context_.stream));
    PLIMSOLL_CUDA(cudaStreamSynchronize(context_.stream));
    return context_.failures.take();
  }

  Context& context_;
  std::byte* base_ = nullptr;
  Bytes bytes_ = 0;
  std::unique_ptr<MappedRange> range_;  // null if memory growth is off
};

class PinnedMemory final : public HostMemory {
 public:
  static Result<std::unique_ptr<Memory>> reserve(Context& context, Bytes bytes) {
    PLIMSOLL_ASSIGN(std::byte* const base, map(bytes));
    std::unique_ptr<PinnedMemory> memory(new PinnedMemory(context, base, bytes));
    const cudaError_t code = cudaHostRegister(base, static_cast<size_t>(bytes), cudaHostRegisterDefault);
    if (code != cudaSuccess) {
      cudaGetLastError();
      return fail(
          Error{ErrorCode::kOutOfMemory,
                fmt::format("the host could not pin {} of memory for offload", format_bytes(bytes)),
                {fmt::format("{}: {}", cudaGetErrorName(code), cudaGetErrorString(code))},
                {"a smaller --host-budget", "--forbid offload", "a higher limit on locked memory (ulimit -l)"}});
    }
    memory->registered_ = true;
    return std::unique_ptr<Memory>(std::move(memory));
  }
  ~PinnedMemory() override {
    for (const cudaStream_t stream : {context_.stream, context_.copies, context_.outgoing})
      cudaStreamSynchronize(stream);
    if (registered_) cudaHostUnregister(at(0));
  }

  Status resize(Bytes, Bytes) override { return fail(ErrorCode::kInternal, "pinned memory cannot be resized"); }

 private:
  PinnedMemory(Context& context, std::byte* base, Bytes bytes) : HostMemory(base, bytes), context_(context) {}

  Context& context_;
  bool registered_ = false;
};

// Double buffering with two batches in pinned host memory and one staging batch in device memory: the host fills one
// pinned batch while the other is being copied. The compute stream waits only for the copy from staging into the arena,
// which runs at the speed of device memory.
class DeviceFeed final : public Feed {
 public:
  DeviceFeed(Context& context, Bytes bytes) : context_(context), bytes_(bytes) {}
  ~DeviceFeed() override {
    cudaStreamSynchronize(context_.copies);
    cudaStreamSynchronize(context_.stream);
    for (int i = 0; i < 2; ++i) {
      cudaFreeHost(pinned_[i]);
      if (sent_[i] != nullptr) cudaEventDestroy(sent_[i]);
    }
    if (taken_ != nullptr) cudaEventDestroy(taken_);
    cudaFree(staging_);
  }

  Status open() {
    for (int i = 0; i < 2; ++i) {
      PLIMSOLL_CUDA(
          cudaHostAlloc(reinterpret_cast<void**>(&pinned_[i]), static_cast<size_t>(bytes_), cudaHostAllocDefault));
      PLIMSOLL_CUDA(cudaEventCreateWithFlags(&sent_[i], cudaEventDisableTiming));
    }
    PLIMSOLL_CUDA(cudaEventCreateWithFlags(&taken_, cudaEventDisableTiming));
    PLIMSOLL_CUDA(cudaMalloc(reinterpret_cast<void**>(&staging_), static_cast<size_t>(bytes_)));
    return {};
  }

  Result<std::span<void* const>> acquire(std::span<const Slot> slots) override {
    PLIMSOLL_CUDA(cudaEventSynchronize(sent_[next_]));
    slots_ = slots;
    hosts_.clear();
    Bytes offset = 0;
    for (const Slot& slot : slots) {
      hosts_.push_back(slot.device == nullptr ? nullptr : pinned_[next_] + offset);
      offset += align_up(slot.bytes);
    }
    assert(offset <= bytes_);
    used_ = offset;
    return std::span<void* const>(hosts_);
  }

  Status submit() override {
    PLIMSOLL_CUDA(cudaStreamWaitEvent(context_.copies, taken_, 0));
    PLIMSOLL_CUDA(
        cudaMemcpyAsync(staging_, pinned_[next_], static_cast<size_t>(used_), cudaMemcpyHostToDevice, context_.copies));
    PLIMSOLL_CUDA(cudaEventRecord(sent_[next_], context_.copies));
    PLIMSOLL_CUDA(cudaStreamWaitEvent(context_.stream, sent_[next_], 0));
    next_ = 1 - next_;
    return again();
  }

  Status again() override {
    Bytes offset = 0;
    for (const Slot& slot : slots_) {
      if (slot.device != nullptr)
        PLIMSOLL_CUDA(cudaMemcpyAsync(slot.device, staging_ + offset, static_cast<size_t>(slot.bytes),
                                      cudaMemcpyDeviceToDevice, context_.stream));
      offset += align_up(slot.bytes);
    }
    PLIMSOLL_CUDA(cudaEventRecord(taken_, context_.stream));
    return {};
  }

  Bytes device_bytes() const override { return align_up(bytes_, 2 * kMiB); }

 private:
  Context& context_;
  Bytes bytes_;
  std::byte* pinned_[2] = {};
  cudaEvent_t sent_[2] = {};  // recorded when the pinned batch has been copied
  std::byte* staging_ = nullptr;
  cudaEvent_t taken_ = nullptr;  // recorded when the staged batch is in its slots
  int next_ = 0;
  Bytes used_ = 0;
  std::span<const Slot> slots_;
  std::vector<void*> hosts_;
};

class DeviceReadback final : public Readback {
 public:
  DeviceReadback(Context& context, const std::byte* from, Bytes bytes)
      : context_(context), from_(from), bytes_(bytes) {}
  ~DeviceReadback() override {
    cudaStreamSynchronize(context_.stream);
    for (int i = 0; i < 2; ++i) {
      cudaFreeHost(to_[i]);
      if (done_[i] != nullptr) cudaEventDestroy(done_[i]);
    }
  }

  Status open() {
    for (int i = 0; i < 2; ++i) {
      PLIMSOLL_CUDA(
          cudaHostAlloc(reinterpret_cast<void**>(&to_[i]), static_cast<size_t>(bytes_), cudaHostAllocDefault));
      PLIMSOLL_CUDA(cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming));
    }
    return {};
  }

  Status request() override {
    const auto i = static_cast<size_t>(requested_++ % 2);
    PLIMSOLL_CUDA(cudaMemcpyAsync(to_[i], from_, static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost, context_.stream));
    PLIMSOLL_CUDA(cudaEventRecord(done_[i], context_.stream));
    return {};
  }

  Result<std::span<const std::byte>> wait() override {
    const auto i = static_cast<size_t>(waited_++ % 2);
    PLIMSOLL_CUDA(cudaEventSynchronize(done_[i]));
    PLIMSOLL_TRY(context_.failures.take());
    return std::span<const std::byte>(to_[i], static_cast<size_t>(bytes_));
  }

 private:
  Context& context_;
  const std::byte* from_;
  Bytes bytes_;
  std::byte* to_[2] = {};
  cudaEvent_t done_[2] = {};
  int64_t requested_ = 0, waited_ = 0;
};

}  // namespace

Result<std::unique_ptr<Memory>> reserve_device_memory(Context& context, Bytes bytes) {
  auto memory = std::make_unique<DeviceMemory>(context);
  PLIMSOLL_TRY(memory->take(bytes));
  return std::unique_ptr<Memory>(std::move(memory));
}

Result<std::unique_ptr<Memory>> reserve_pinned_memory(Context& context, Bytes bytes) {
  return PinnedMemory::reserve(context, bytes);
}

Result<std::unique_ptr<Feed>> open_device_feed(Context& context, Bytes bytes) {
  auto feed = std::make_unique<DeviceFeed>(context, std::max<Bytes>(bytes, 1));
  PLIMSOLL_TRY(feed->open());
  return std::unique_ptr<Feed>(std::move(feed));
}

Result<std::unique_ptr<Readback>> open_device_readback(Context& context, const Memory& memory, Bytes offset,
                                                       Bytes bytes) {
  auto readback = std::make_unique<DeviceReadback>(context, memory.at(offset), bytes);
  PLIMSOLL_TRY(readback->open());
  return std::unique_ptr<Readback>(std::move(readback));
}

}  // namespace plimsoll::engine::cuda
