#include "data/prefetcher.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstring>

namespace plimsoll::engine {
namespace {

// Each array of a batch is aligned to kAlignment.
template <typename Use>
Bytes for_each_array(const BatchSource& source, int64_t most, Use use) {
  Bytes offset = 0;
  const auto place = [&](int kind, Bytes bytes) {
    use(kind, offset);
    offset += align_up(most * bytes);
  };
  for (const auto& type : source.input_types()) place(0, type.bytes());
  for (const auto& type : source.target_types()) place(1, type.bytes());
  if (source.has_weights())
    for (size_t i = 0; i < source.target_types().size(); ++i) place(2, sizeof(float));
  return offset;
}

BatchBuffers lay_out(const BatchSource& source, int64_t most, std::byte* memory) {
  BatchBuffers buffers;
  for_each_array(source, most, [&](int kind, Bytes offset) {
    if (kind == 0) buffers.inputs.push_back(memory + offset);
    if (kind == 1) buffers.targets.push_back(memory + offset);
    if (kind == 2) buffers.weights.push_back(reinterpret_cast<float*>(memory + offset));
  });
  return buffers;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

tl::unexpected<Error> past_the_end() {
  return fail(ErrorCode::kInternal, "a batch was requested after the last one");
}

}  // namespace

Bytes Prefetcher::staging_bytes(const BatchSource& source, int depth, int64_t most) {
  return depth * for_each_array(source, most, [](int, Bytes) {});
}

Bytes Prefetcher::buffer_bytes(const BatchSource& source, int depth, int64_t most) {
  return source.buffer_bytes() + (depth > 0 ? staging_bytes(source, depth, most) + kThreadStack : 0);
}

Prefetcher::Prefetcher(BatchSource& source, Schedule schedule, int depth, int64_t most, std::span<std::byte> staging)
    : source_(source), schedule_(std::move(schedule)), most_(most) {
  const Bytes slot = staging_bytes(source, 1, most);
  for (int i = 0; i < depth; ++i) slots_.push_back({{}, lay_out(source, most, staging.data() + i * slot)});
}

Result<std::unique_ptr<Prefetcher>> Prefetcher::start(BatchSource& source, Schedule schedule, int depth, int64_t most,
                                                      std::span<std::byte> staging) {
  if (depth < 0 || most <= 0 || static_cast<Bytes>(staging.size()) < staging_bytes(source, depth, most) ||
      reinterpret_cast<uintptr_t>(staging.data()) % kAlignment != 0)
    return fail(ErrorCode::kInternal,
                fmt::format("{} bytes are too few to prefetch {} batches of {} samples", staging.size(), depth, most));
  std::unique_ptr<Prefetcher> prefetcher(new Prefetcher(source, std::move(schedule), depth, most, staging));
  if (depth == 0) return prefetcher;
  // Blocks all signals in the new thread, which inherits its creator's mask. Other threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<size_t>(kThreadStack));
  const int failure = pthread_create(&prefetcher->thread_, &attributes, run, prefetcher.get());
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0)
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("cannot start the thread that prefetches data: {}", std::strerror(failure)));
  prefetcher->threaded_ = true;
  return prefetcher;
}

Prefetcher::~Prefetcher() {
  if (!threaded_) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  pthread_join(thread_, nullptr);
}

void* Prefetcher::run(void* self) {
  static_cast<Prefetcher*>(self)->read_ahead();
  return nullptr;
}

template <typename Ready>
void Prefetcher::wait(std::unique_lock<std::mutex>& lock, double& seconds, Ready ready) {
  if (ready()) return;
  const Clock::time_point start = Clock::now();
  changed_.wait(lock, ready);
  seconds += seconds_since(start);
}

Status Prefetcher::read(const BatchRequest& request, const BatchBuffers& into) {
  const Clock::time_point start = Clock::now();
  Status status = source_.read(request.epoch, request.first, request.count, into);
  const std::lock_guard lock(mutex_);
  times_.reading += seconds_since(start);
  times_.samples += request.count;
  return status;
}

DataTimes Prefetcher::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

void Prefetcher::read_ahead() {
  const auto depth = static_cast<int64_t>(slots_.size());
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wait(lock, times_.reader, [&] { return stop_ || read_ - released_ < depth; });
      if (stop_) return;
    }
    const auto request = schedule_();
    Status status;
    if (request) status = check(*request);
    if (request && status) {
      Batch& slot = slots_[static_cast<size_t>(read_ % depth)];
      slot.request = *request;
      status = read(*request, slot.buffers);
    }
    {
      std::lock_guard lock(mutex_);
      if (!status) error_ = std::move(status).error();
      ended_ = !request || error_;
      if (!ended_) ++read_;
    }
    changed_.notify_all();
    if (ended_) return;
  }
}

// Rejects a batch larger than its memory, which would otherwise be written past the end.
Status Prefetcher::check(const BatchRequest& request) const {
  if (request.count > 0 && request.count <= most_) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("a batch of {} samples was to be read, but there is room for {}", request.count, most_));
}

Result<const Prefetcher::Batch*> Prefetcher::acquire() {
  if (!threaded_) return fail(ErrorCode::kInternal, "the prefetcher has no thread");
  std::unique_lock lock(mutex_);
  wait(lock, times_.consumer, [&] { return read_ > released_ || ended_; });
  if (read_ > released_) return &slots_[static_cast<size_t>(released_ % static_cast<int64_t>(slots_.size()))];
  if (error_) return fail(*error_);
  return nullptr;
}

void Prefetcher::release() {
  {
    std::lock_guard lock(mutex_);
    if (read_ > released_) ++released_;
  }
  changed_.notify_all();
}

void Prefetcher::copy_out(const Batch& batch, const BatchBuffers& into) const {
  const auto copy = [&](void* to, const void* from, Bytes bytes) {
    if (to != nullptr) std::memcpy(to, from, static_cast<size_t>(batch.request.count * bytes));
  };
  for (size_t i = 0; i < into.inputs.size(); ++i)
    copy(into.inputs[i], batch.buffers.inputs[i], source_.input_types()[i].bytes());
  for (size_t i = 0; i < into.targets.size(); ++i)
    copy(into.targets[i], batch.buffers.targets[i], source_.target_types()[i].bytes());
  for (size_t i = 0; i < into.weights.size(); ++i) copy(into.weights[i], batch.buffers.weights[i], sizeof(float));
}

Result<BatchRequest> Prefetcher::next(const BatchBuffers& into) {
  if (threaded_) {
    PLIMSOLL_ASSIGN(const Batch* batch, acquire());
    if (batch == nullptr) return past_the_end();
    const BatchRequest served = batch->request;
    copy_out(*batch, into);
    release();
    return served;
  }
  if (error_) return fail(*error_);
  const auto request = schedule_();
  if (!request) return past_the_end();
  PLIMSOLL_TRY(check(*request));
  const double before = times_.reading;
  Status status = read(*request, into);
  times_.consumer += times_.reading - before;
  if (!status) {
    error_ = status.error();
    return fail(std::move(status).error());
  }
  return *request;
}

}  // namespace plimsoll::engine
