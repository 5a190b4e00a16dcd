// Reads ahead: while the device computes on one batch, a thread reads the next ones into staging memory that the plan
// granted. With depth 0 there is no thread and no staging, and next() reads straight into the destination.
// After start() nothing is allocated as long as the source allocates nothing.
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
  bool last_of_window = false;  // an optimizer step ends with it

  bool operator==(const BatchRequest&) const = default;
};

// The requests in their order, nothing after the last. Called by the reading thread, so it may not touch what others
// change.
using Schedule = std::function<std::optional<BatchRequest>()>;

class Prefetcher {
 public:
  // Resident at most; the rest of what a depth above 0 costs is staging_bytes().
  static constexpr Bytes kThreadStack = 256 * kKiB;

  // Of staging for `depth` batches of at most `most` samples.
  static Bytes staging_bytes(const BatchSource& source, int depth, int64_t most);
  // What the plan's data share is charged.
  static Bytes buffer_bytes(const BatchSource& source, int depth, int64_t most);

  // `source` and `staging` (staging_bytes() of them, aligned to kAlignment) must outlive it.
  // P604 when the system gives no thread.
  static Result<std::unique_ptr<Prefetcher>> start(BatchSource& source, Schedule schedule, int depth, int64_t most,
                                                   std::span<std::byte> staging);
  ~Prefetcher();  // waits for the read under way
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch of the schedule, into the caller's buffers; targets and weights may be left out. Returns the request
  // that was served, for the caller to compare with what it expects. An error comes in its place in the sequence, and
  // again from every later call. Not to be called after the schedule's end.
  Result<BatchRequest> next(const BatchBuffers& into);

  // The same without a copy, where depth > 0: the batch stays in place until release(). Null after the schedule's end.
  struct Batch {
    BatchRequest request;
    BatchBuffers buffers;
  };
  Result<const Batch*> acquire();
  void release();

 private:
  Prefetcher(BatchSource& source, Schedule schedule, int depth, int64_t most, std::span<std::byte> staging);
  static void* run(void* self);
  void read_ahead();
  void copy_out(const Batch& batch, const BatchBuffers& into) const;
  Status check(const BatchRequest& request) const;

  BatchSource& source_;
  Schedule schedule_;
  const int64_t most_;
  std::vector<Batch> slots_;  // a ring: slot i % depth holds batch i
  bool threaded_ = false;
  pthread_t thread_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t read_ = 0;      // batches read
  int64_t released_ = 0;  // batches the consumer is done with
  bool ended_ = false;    // no batch after read_
  bool stop_ = false;
  std::optional<Error> error_;
};

}  // namespace plimsoll::engine
