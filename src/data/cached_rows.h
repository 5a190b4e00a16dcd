// Keeps decoded pictures in a temporary file, so that an epoch after the first reads them instead of decoding them.
// What comes before the cache is the same in every epoch (decoding, resizing); random augmentation comes after it.
//
// A row is kept as bytes if all of its numbers are whole, or if the user lets them be rounded; otherwise as it is. So
// the cache itself never changes a pixel: with rounding, rows are rounded whether they come from the cache or not.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "data/read_options.h"
#include "data/rows.h"
#include "formats/file/scratch_file.h"

namespace plimsoll::engine {

// What a plan says about the cache, and what it was decided from.
struct CachePlan {
  bool asked = false;  // false: --cache-images off
  bool used = false;
  std::string folder, why;  // why: the reason for not using it
  std::string work;         // what it saves: "JPEG decode"
  int64_t records = 0, kept = 0;
  int64_t elements = 0;                                          // of a row
  Bytes row_bytes = 0;                                           // of a row on the disk
  double make_seconds = 0, read_seconds = 0, write_seconds = 0;  // per record: predicted
  bool rounds = false;                                           // pixels are rounded to whole numbers
  bool pages_stay = false;  // in memory beyond the budget, so that they are not read from the disk

  Bytes disk_bytes() const { return kept * row_bytes; }
};

// Decides whether a cache pays: from the sizes in the headers, the number of epochs and the room on the disk.
CachePlan plan_cache(const CacheOptions& options, const Decoding& decoding, int64_t records, int64_t elements,
                     Bytes room);

// What a plan says about it.
std::string cache_text(const CachePlan& plan);

class CachedRows final : public RowSource {
 public:
  // `inner` reads `records` rows of float32 for `field`. Its other fields are passed on. `note` receives what went
  // wrong with the disk; the rows are then decoded again.
  CachedRows(std::shared_ptr<RowSource> inner, size_t field, int64_t records, int64_t elements,
             const CacheOptions& options, std::function<void(const std::string&)> note);

  const CachePlan& plan() const { return plan_; }

  Bytes bytes() const override;
  Status read(size_t field, int64_t record, void* into) override;
  Result<std::string> digest(size_t field) override { return inner_->digest(field); }
  std::optional<Decoding> decoding(size_t field) const override { return inner_->decoding(field); }
  int readers() const override { return inner_->readers(); }
  RowTimes times() const override;

 private:
  static constexpr uint32_t kNone = UINT32_MAX, kBeingWritten = UINT32_MAX - 1;

  void open(const CacheOptions& options);
  uint32_t place_of(int64_t record);
  Status fetch(uint32_t place, float* into);
  void keep(int64_t record, const float* row);
  Status write(uint32_t place, const float* row);
  void give_up(const std::string& what);

  const std::shared_ptr<RowSource> inner_;
  const size_t field_;
  const int64_t elements_;
  const bool round_;
  const std::function<void(const std::string&)> note_;
  CachePlan plan_;
  bool as_bytes_ = false;
  std::optional<ScratchFile> file_;
  std::mutex writing_;             // of packed_
  std::vector<std::byte> packed_;  // a row as bytes
  mutable std::mutex mutex_;       // of the members below
  std::vector<uint32_t> places_;   // for each record, its row in the file
  uint32_t next_ = 0, most_ = 0;   // rows in the file
  int64_t kept_ = 0;
  bool broken_ = false;  // it cannot be read
  bool told_ = false;
  RowTimes cached_;
};

}  // namespace plimsoll::engine
