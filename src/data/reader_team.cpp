#include "data/reader_team.h"

#include <signal.h>

#include <algorithm>

namespace plimsoll::engine {

ReaderTeam::ReaderTeam(int threads) {
  // The new threads inherit a mask that blocks all signals. Other threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<size_t>(kThreadStack));
  for (int i = 1; i < threads; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, run, this) != 0) break;
    threads_.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ReaderTeam::~ReaderTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void* ReaderTeam::run(void* self) {
  static_cast<ReaderTeam*>(self)->serve();
  return nullptr;
}

void ReaderTeam::serve() {
  int64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || batch_ != seen; });
      if (stop_) return;
      seen = batch_;
    }
    take_part();
  }
}

void ReaderTeam::take_part() {
  for (;;) {
    int64_t i = 0;
    const std::function<Status(int64_t)>* work = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (next_ >= count_) return;
      i = next_++;
      work = work_;
      ++busy_;
    }
    Status status = (*work)(i);
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      if (!status && (failed_ || i < failed_at_)) {
        failed_ = std::move(status);
        failed_at_ = i;
        count_ = std::min(count_, i);  // records after it are not wanted
      }
      last = --busy_ == 0 && next_ >= count_;
    }
    if (last) changed_.notify_all();
  }
}

Status ReaderTeam::for_each(int64_t count, const std::function<Status(int64_t)>& work) {
  const std::lock_guard one(one_batch_);
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    next_ = 0;
    count_ = count;
    failed_at_ = count;
    failed_ = {};
    ++batch_;
  }
  changed_.notify_all();
  take_part();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  return std::move(failed_);
}

}  // namespace plimsoll::engine
