// Copies the sums of a window back to the host while the device continues.
#include <algorithm>
#include <cassert>
#include <limits>

#include "execute/session.h"

namespace plimsoll::engine {
namespace {

double get_floating(const TensorView& view, int64_t index) {
  return view.type.dtype == DType::kFloat64 ? view.as<double>()[index] : static_cast<double>(view.as<float>()[index]);
}

}  // namespace

void Session::request_sums() {
  assert(requested_ - collected_ < 2 || !readback_);
  Sums& sums = sums_[readback_ ? requested_ % 2 : 0];
  std::copy(weight_sums_.begin(), weight_sums_.end(), sums.weights.begin());
  ++requested_;
  // A failure to enqueue is sticky and comes back from wait().
  if (readback_) (void)readback_->request();
  if (skips_) (void)skips_->request();
}

void Session::read_tallies(const std::byte* persistent, Sums& sums) const {
  size_t next = 0;
  for (const PersistentSlot* slot : tally_slots_) {
    const TensorView view{slot->type, const_cast<std::byte*>(persistent) + slot->offset};
    for (int64_t i = 0; i < view.elements(); ++i) sums.tallies[next++] = get_floating(view, i);
  }
}

Result<const Sums*> Session::collect() {
  if (collected_ == requested_) return fail(ErrorCode::kInternal, "there is nothing to collect: no window was applied");
  Sums& sums = sums_[readback_ ? collected_ % 2 : 0];
  if (readback_) {
    ++collected_;  // also if the device has failed, so that the same sums are not requested again
    PLIMSOLL_ASSIGN(const auto bytes, readback_->wait());
    read_tallies(bytes.data() - tally_begin_, sums);
    if (skips_) {
      PLIMSOLL_ASSIGN(const auto count, skips_->wait());
      skipped_ = *reinterpret_cast<const int64_t*>(count.data());
    }
  } else {
    read_tallies(arena_->memory().at(0), sums);
    collected_ = requested_;
  }
  return &sums;
}

Result<int64_t> Session::skipped_updates() {
  const PersistentSlot* slot = arena_->slot(kSkippedUpdates);
  if (slot == nullptr) return 0;
  if (skipped_) return *skipped_;
  int64_t count = 0;
  PLIMSOLL_TRY(arena_->memory().read(slot->offset, &count, sizeof count));
  if (skips_) skipped_ = count;
  return count;
}

double Session::tally(const std::string& name) {
  while (collected_ < requested_)
    if (!collect()) return std::numeric_limits<double>::quiet_NaN();
  const Sums& newest = sums_[readback_ ? (collected_ + 1) % 2 : 0];
  size_t next = 0;
  for (const Tally& tally : tallies()) {
    if (tally.name == name) return newest.tallies[next];
    next += tally.size();
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace plimsoll::engine
