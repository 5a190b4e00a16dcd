#include "data/rows.h"

#include <chrono>

namespace plimsoll::engine {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void RowTimes::add(const RowTimes& other) {
  seconds += other.seconds;
  file_seconds += other.file_seconds;
  records += other.records;
  cached_seconds += other.cached_seconds;
  cached += other.cached;
}

ReadClock::ReadClock(RowTimes& times) : times_(times), start_(now()) {}

ReadClock::~ReadClock() {
  times_.seconds += now() - start_;
  ++times_.records;
}

}  // namespace plimsoll::engine
