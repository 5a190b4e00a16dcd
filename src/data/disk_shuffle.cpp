#include "data/disk_shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "formats/file/cache.h"

namespace plimsoll::engine {
namespace {

// A disk reads this often per second if it is asked for one thing at a time, and this many bytes if they are adjacent.
// Measured on a cloud disk.
constexpr double kRandomRead = 100e-6, kDiskRead = 800e6, kDiskWrite = 300e6;
constexpr double kDealRecord = 1e-6;  // CPU time per record
constexpr Bytes kPlace = sizeof(uint32_t);

}  // namespace

Bytes ShufflePlan::memory_bytes() const {
  if (!by_disk) return 0;
  const Bytes dealing = buckets * std::max(DiskShuffle::kBuffer, entry_bytes), bucket = per_bucket * entry_bytes;
  return std::max(dealing, bucket) + std::max(DiskShuffle::kBuffer, entry_bytes) + per_bucket * kPlace + buckets * 16;
}

ShufflePlan plan_shuffle(const ShuffleOptions& options, int64_t records, Bytes record_bytes, int reads) {
  ShufflePlan plan;
  plan.records = records;
  plan.entry_bytes = record_bytes + kPlace;
  const double data = static_cast<double>(records) * static_cast<double>(record_bytes);
  plan.index_seconds = static_cast<double>(records) * reads * kRandomRead + data / kDiskRead;
  plan.disk_seconds = 2 * data / kDiskRead + data / kDiskWrite + static_cast<double>(records) * kDealRecord;
  // As many buckets as make the buffers of pass 1 as large as a bucket of pass 2.
  const auto entries = checked_multiply(records, plan.entry_bytes);
  if (!entries || records < 2) {
    plan.why = records < 2 ? "there is one record" : "the data are too large to count";
    return plan;
  }
  const double most = std::sqrt(static_cast<double>(*entries) / static_cast<double>(DiskShuffle::kBuffer));
  plan.buckets = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(most)), 1, records);
  plan.per_bucket = std::max((records - 1) / plan.buckets + 1, int64_t{1});
  plan.buckets = (records - 1) / plan.per_bucket + 1;
  using enum ShuffleOptions::By;
  const bool stays = *entries <= options.page_room;
  plan.by_disk = plan.per_bucket <= int64_t{UINT32_MAX} &&
                 (options.by == kDisk || (options.by == kAuto && !stays && plan.disk_seconds < plan.index_seconds));
  if (plan.by_disk) {
    const auto folder = options.folder.empty() ? cache_folder() : Result<std::string>(options.folder);
    if (folder) plan.folder = *folder;
    if (!folder) plan.by_disk = false;
    if (!folder) plan.why = folder.error().what;
  } else {
    plan.why = options.by == kIndex ? "--shuffle-by index"
               : stays              ? "memory beyond the budget keeps the data after the first epoch"
                                    : "reading by index is predicted to be faster";
  }
  return plan;
}

std::string shuffle_text(const ShufflePlan& plan) {
  const auto seconds = [](double s) { return s < 1 ? fmt::format("{:.0f} ms", 1e3 * s) : fmt::format("{:.1f} s", s); };
  if (!plan.by_disk) return fmt::format("Records are shuffled by index: {}.", plan.why);
  return fmt::format(
      "Records are shuffled through {} buckets, with {} of disk in {} and {} of memory: about {} per epoch instead of "
      "{} "
      "by index, in the same order.",
      plan.buckets, format_bytes(plan.disk_bytes()), plan.folder, format_bytes(plan.memory_bytes()),
      seconds(plan.disk_seconds), seconds(plan.index_seconds));
}

Result<std::unique_ptr<DiskShuffle>> DiskShuffle::open(const ShufflePlan& plan) {
  PLIMSOLL_ASSIGN(ScratchFile file, ScratchFile::create(plan.folder));
  if (file.room() < plan.disk_bytes())
    return fail(ErrorCode::kWriteFailed,
                fmt::format("shuffling through {} needs {}, and {} are free there", plan.folder,
                            format_bytes(plan.disk_bytes()), format_bytes(file.room())));
  return std::unique_ptr<DiskShuffle>(new DiskShuffle(plan, std::move(file)));
}

DiskShuffle::DiskShuffle(ShufflePlan plan, ScratchFile file)
    : plan_(std::move(plan)),
      record_bytes_(plan_.entry_bytes - kPlace),
      buffered_(std::max<int64_t>(kBuffer / plan_.entry_bytes, 1) * plan_.entry_bytes),
      file_(std::move(file)),
      buckets_(static_cast<size_t>(plan_.buckets)),
      memory_(static_cast<size_t>(std::max(plan_.buckets * buffered_, plan_.per_bucket * plan_.entry_bytes))),
      block_(static_cast<size_t>(std::max<Bytes>(kBuffer / record_bytes_, 1) * record_bytes_)),
      places_(static_cast<size_t>(plan_.per_bucket)) {}

Status DiskShuffle::flush(int64_t bucket) {
  Bucket& one = buckets_[static_cast<size_t>(bucket)];
  const auto waiting =
      std::span(memory_).subspan(static_cast<size_t>(bucket * buffered_), static_cast<size_t>(one.waiting));
  PLIMSOLL_TRY(file_.write(bucket * plan_.per_bucket * plan_.entry_bytes + one.written, waiting));
  one.written += one.waiting;
  one.waiting = 0;
  return {};
}

Status DiskShuffle::append(int64_t bucket, const std::byte* record, uint32_t place) {
  Bucket& one = buckets_[static_cast<size_t>(bucket)];
  std::byte* const to = memory_.data() + bucket * buffered_ + one.waiting;
  std::memcpy(to, record, static_cast<size_t>(record_bytes_));
  std::memcpy(to + record_bytes_, &place, sizeof place);
  one.waiting += plan_.entry_bytes;
  return one.waiting == buffered_ ? flush(bucket) : Status();
}

// Pass 1. Records of buckets before `first_bucket`, which a resumed run has behind it, are left out.
Status DiskShuffle::deal(const SampleOrder& order, int64_t first_bucket, const ReadInOrder& read) {
  std::fill(buckets_.begin(), buckets_.end(), Bucket());
  const int64_t at_once = static_cast<int64_t>(block_.size()) / record_bytes_;
  for (int64_t first = 0; first < plan_.records; first += at_once) {
    const int64_t count = std::min(at_once, plan_.records - first);
    PLIMSOLL_TRY(read(first, count, block_.data()));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = order.position_of(first + i), bucket = position / plan_.per_bucket;
      if (bucket < first_bucket) continue;
      PLIMSOLL_TRY(
          append(bucket, block_.data() + i * record_bytes_, static_cast<uint32_t>(position % plan_.per_bucket)));
    }
  }
  for (int64_t bucket = first_bucket; bucket < plan_.buckets; ++bucket) PLIMSOLL_TRY(flush(bucket));
  file_.settle();
  return {};
}

// Pass 2.
Status DiskShuffle::load(int64_t bucket) {
  const int64_t records = std::min(plan_.per_bucket, plan_.records - bucket * plan_.per_bucket);
  const auto whole = std::span(memory_).first(static_cast<size_t>(records * plan_.entry_bytes));
  loaded_ = -1;
  PLIMSOLL_TRY(file_.read(bucket * plan_.per_bucket * plan_.entry_bytes, whole));
  for (int64_t i = 0; i < records; ++i) {
    uint32_t place = 0;
    std::memcpy(&place, whole.data() + i * plan_.entry_bytes + record_bytes_, sizeof place);
    if (place >= places_.size()) return fail(ErrorCode::kFileUnreadable, "a temporary file was changed while in use");
    places_[place] = static_cast<uint32_t>(i);
  }
  loaded_ = bucket;
  return {};
}

Status DiskShuffle::read(const SampleOrder& order, int64_t epoch, int64_t first, int64_t count, const ReadInOrder& read,
                         const std::function<void(int64_t i, const std::byte* record)>& take) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = first + i, bucket = position / plan_.per_bucket;
    if (epoch != epoch_ || bucket < first_bucket_) {
      epoch_ = loaded_ = -1;
      PLIMSOLL_TRY(deal(order, bucket, read));
      epoch_ = epoch;
      first_bucket_ = bucket;
    }
    if (bucket != loaded_) PLIMSOLL_TRY(load(bucket));
    take(i, memory_.data() + int64_t{places_[static_cast<size_t>(position % plan_.per_bucket)]} * plan_.entry_bytes);
  }
  return {};
}

}  // namespace plimsoll::engine
