// Threads that read the records of a batch side by side. The caller's thread is one of them.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

class ReaderTeam {
 public:
  // An upper bound on the resident stack of each thread beside the caller's.
  static constexpr Bytes kThreadStack = 256 * kKiB;

  // `threads` counts the caller's. If the system cannot start some of them, there are fewer.
  explicit ReaderTeam(int threads);
  ~ReaderTeam();
  ReaderTeam(const ReaderTeam&) = delete;
  ReaderTeam& operator=(const ReaderTeam&) = delete;

  // Calls work(i) for each i in [0, count), in any order and from any thread. Returns the error of the smallest i that
  // failed; the calls for larger ones may then be missing.
  Status for_each(int64_t count, const std::function<Status(int64_t)>& work);

 private:
  static void* run(void* self);
  void serve();
  void take_part();

  std::vector<pthread_t> threads_;
  std::mutex one_batch_;  // several threads may call for_each()
  std::mutex mutex_;      // of the members below
  std::condition_variable changed_;
  const std::function<Status(int64_t)>* work_ = nullptr;
  int64_t next_ = 0, count_ = 0, batch_ = 0, failed_at_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  Status failed_;
};

}  // namespace plimsoll::engine
