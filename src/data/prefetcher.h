// Prefetches batches: while the device computes on one batch, a thread reads the next ones into staging memory that the
// plan granted. With depth 0 there is no thread and no staging memory, and next() reads directly into the destination.
// After start() nothing is allocated, provided the source allocates nothing.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "data/source.h"

namespace plimsoll::engine {

struct BatchRequest {
  int64_t epoch = 0, first = 0, count = 0;
  bool last_of_window = false;  // an optimizer step follows this batch

  bool operator==(const BatchRequest&) const = default;
};

// Who waited for whom, in seconds.
struct DataTimes {
  double reading = 0;   // the source was read
  double consumer = 0;  // the consumer waited for a batch
  double reader = 0;    // the reader waited for room
  int64_t samples = 0;  // that were read
  RowTimes rows;        // of the source's rows; filled in at the end of a run
  int readers = 1;      // threads that read rows side by side
};

// Returns the requests in order, then nullopt. It is called by the reading thread, so it must not use data that other
// threads change.
using Schedule = std::function<std::optional<BatchRequest>()>;

class Prefetcher {
 public:
  // An upper bound on the resident stack. Together with staging_bytes() it is the whole cost of a depth above 0.
  static constexpr Bytes kThreadStack = 256 * kKiB;

  // Returns the staging memory for `depth` batches of at most `most` samples.
  static Bytes staging_bytes(const BatchSource& source, int depth, int64_t most);
  // Returns the bytes charged to the plan's data share.
  static Bytes buffer_bytes(const BatchSource& source, int depth, int64_t most);

  // `source` and `staging` must outlive the prefetcher. `staging` needs staging_bytes(), aligned to kAlignment. Fails
  // with P604 if the system cannot start a thread.
  static Result<std::unique_ptr<Prefetcher>> start(BatchSource& source, Schedule schedule, int depth, int64_t most,
                                                   std::span<std::byte> staging);
  ~Prefetcher();  // waits until the current read is finished
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Reads the schedule's next batch into the caller's buffers, which may omit targets and weights. Returns the request
  // that was served, so that the caller can check it. An error is returned at its place in the sequence and by every
  // later call. Must not be called after the schedule's end.
  Result<BatchRequest> next(const BatchBuffers& into);

  // Same, without a copy; needs depth > 0. The batch stays valid until release(). Null after the schedule's end.
  struct Batch {
    BatchRequest request;
    BatchBuffers buffers;
  };
  Result<const Batch*> acquire();
  void release();

  DataTimes times();

 private:
  Prefetcher(BatchSource& source, Schedule schedule, int depth, int64_t most, std::span<std::byte> staging);
  static void* run(void* self);
  void read_ahead();
  void copy_out(const Batch& batch, const BatchBuffers& into) const;
  Status check(const BatchRequest& request) const;
  // Waits until `ready`, and adds the time to `seconds`.
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, double& seconds, Ready ready);
  // Reads a batch, and adds to times_, which the caller has not locked.
  Status read(const BatchRequest& request, const BatchBuffers& into);

  BatchSource& source_;
  Schedule schedule_;
  const int64_t most_;
  std::vector<Batch> slots_;  // a ring: slot i % depth holds batch i
  bool threaded_ = false;
  pthread_t thread_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t read_ = 0;      // batches read
  int64_t released_ = 0;  // batches that the consumer has released
  bool ended_ = false;    // no batch follows read_
  bool stop_ = false;
  std::optional<Error> error_;
  DataTimes times_;
};

}  // namespace plimsoll::engine
