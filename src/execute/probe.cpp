#include "execute/probe.h"

#include <algorithm>
#include <chrono>

namespace plimsoll::engine {

void Probe::fill_pattern() {
  Memory& memory = session_.arena_->memory();
  const Bytes from = session_.arena_->persistent_bytes();
  require(memory.commit(memory.bytes()));
  (void)memory.fill(from, kPattern, memory.bytes() + Memory::kGuard - from);
}

Bytes Probe::first_changed_byte(Bytes from) const {
  const Memory& memory = session_.arena_->memory();
  std::vector<std::byte> bytes(static_cast<size_t>(memory.bytes() + Memory::kGuard - from));
  if (!memory.read(from, bytes.data(), static_cast<Bytes>(bytes.size()))) return from;
  const auto changed = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != kPattern; });
  return changed == bytes.end() ? -1 : from + (changed - bytes.begin());
}

void Probe::watch(Watch watch) {
  session_.run_instead_ = nullptr;
  if (!watch) return;
  const Backend* const queue = session_.device().info().own_memory ? &session_.backend_ : nullptr;
  session_.run_instead_ = [arena = session_.arena_.get(), queue, watch = std::move(watch)](const BoundPhase& phase) {
    // A device that failed says so when the step is collected.
    const auto wait = [&] {
      if (queue != nullptr) (void)queue->finish();
    };
    wait();
    for (size_t n = 0; n < phase.kernels.size(); ++n) {
      watch(*phase.plan, n, false, arena->memory().at(0));
      phase.kernels[n]->run();
      wait();
      watch(*phase.plan, n, true, arena->memory().at(0));
    }
  };
}

Result<std::vector<double>> Probe::measure_nodes(PhaseKind kind, int64_t samples, int repeats) {
  using Clock = std::chrono::steady_clock;
  PLIMSOLL_ASSIGN(const BoundPhase* const phase, session_.bound_->ready(kind, samples));
  session_.flush_pokes();
  std::vector<double> seconds;
  for (const auto& kernel : phase->kernels) {
    kernel->run();
    PLIMSOLL_TRY(session_.backend_.finish());
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) kernel->run();
    PLIMSOLL_TRY(session_.backend_.finish());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / repeats);
  }
  return seconds;
}

Status Probe::accumulate_again(int64_t count) {
  PLIMSOLL_ASSIGN(const BoundPhase* const phase, session_.next_accumulate(count));
  if (!session_.feed_)
    return fail(ErrorCode::kInternal, "a batch cannot be repeated on a device that computes in host memory");
  PLIMSOLL_TRY(session_.feed_->again());
  session_.run(*phase);
  return {};
}

}  // namespace plimsoll::engine
