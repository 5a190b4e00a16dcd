#include "backends/cuda/driver/failures.h"

#include <mutex>
#include <optional>
#include <utility>

#include "backends/cuda/driver/context.h"

namespace plimsoll::cuda {
namespace {

std::mutex mutex;
std::optional<Error> first;

}  // namespace

void note_failure(Error error) noexcept {
  const std::lock_guard lock(mutex);
  if (!first) first = std::move(error);
}

Status enqueue_status() {
  std::unique_lock lock(mutex);
  std::optional<Error> noted = std::exchange(first, std::nullopt);
  lock.unlock();
  // A library often says no more than that it failed; the runtime may know why.
  if (const cudaError_t code = cudaGetLastError();
      code != cudaSuccess && (!noted || noted->code == ErrorCode::kInternal))
    return fail(cuda_error(code, "the start of a kernel"));
  if (noted) return fail(std::move(*noted));
  return {};
}

}  // namespace plimsoll::cuda
