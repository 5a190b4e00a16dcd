// Shuffles records through a temporary file, for data whose records are too small to be read one by one from a disk.
//
// Pass 1 reads all records in the order of the data, and appends each to the bucket of its position in the epoch. Pass
// 2 reads one bucket after the other, and puts its records into their order in memory. The positions are those of
// SampleOrder, so the epoch is the same as if each record were read by its index: uniform over all records, each
// exactly once, and the same again after a resume in the middle.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/order.h"
#include "data/read_options.h"
#include "formats/file/scratch_file.h"

namespace plimsoll::engine {

// How the records of an epoch are found, and what was expected of it.
struct ShufflePlan {
  bool by_disk = false;
  std::string folder, why;
  int64_t records = 0, per_bucket = 0, buckets = 0;
  Bytes entry_bytes = 0;                       // of a record in a bucket
  double index_seconds = 0, disk_seconds = 0;  // per epoch: predicted

  Bytes disk_bytes() const { return buckets * per_bucket * entry_bytes; }
  Bytes memory_bytes() const;
};

// Chooses the way that is predicted to be faster. By index, a record takes `reads` reads from the disk.
ShufflePlan plan_shuffle(const ShuffleOptions& options, int64_t records, Bytes record_bytes, int reads);
// What a plan says about it.
std::string shuffle_text(const ShufflePlan& plan);

class DiskShuffle {
 public:
  // Fails with P601 or P602 if the folder has no room.
  static Result<std::unique_ptr<DiskShuffle>> open(const ShufflePlan& plan);

  // Reads records first .. first+count-1 of the data one after the other into memory, `entry` bytes apart.
  using ReadInOrder = std::function<Status(int64_t first, int64_t count, std::byte* into)>;
  // Passes the records at positions first .. first+count-1 of the epoch to `take`. Runs pass 1 if these positions are
  // not in the file yet.
  Status read(const SampleOrder& order, int64_t epoch, int64_t first, int64_t count, const ReadInOrder& read,
              const std::function<void(int64_t i, const std::byte* record)>& take);

  static constexpr Bytes kBuffer = 64 * kKiB;  // of each bucket in pass 1, and of the records that are read at once

 private:
  DiskShuffle(ShufflePlan plan, ScratchFile file);
  Status deal(const SampleOrder& order, int64_t first_bucket, const ReadInOrder& read);
  Status append(int64_t bucket, const std::byte* record, uint32_t place);
  Status flush(int64_t bucket);
  Status load(int64_t bucket);

  struct Bucket {
    int64_t written = 0;  // bytes in the file
    int64_t waiting = 0;  // bytes in its buffer
  };

  const ShufflePlan plan_;
  const Bytes record_bytes_;
  const int64_t buffered_;  // bytes of a bucket's buffer that whole records fill
  ScratchFile file_;
  std::vector<Bucket> buckets_;
  std::vector<std::byte> memory_;  // pass 1: the buckets' buffers; pass 2: one bucket
  std::vector<std::byte> block_;
  std::vector<uint32_t> places_;  // pass 2: where in memory_ the record at each place of the bucket is
  int64_t epoch_ = -1, first_bucket_ = 0, loaded_ = -1;
};

}  // namespace plimsoll::engine
