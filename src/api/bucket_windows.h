// Reads windows of sequences whose lengths are in one bucket, and has the session use that bucket's plan.
#pragma once

#include "api/length_buckets.h"
#include "execute/session.h"
#include "execute/window_reader.h"

namespace plimsoll::engine {

class BucketWindows final : public WindowReader {
 public:
  struct Settings {
    int64_t window = 0;   // samples of a full window
    int64_t windows = 0;  // maximum per epoch; 0: all
    bool shuffle = true;
    uint64_t seed = 0;
  };
  // `source` must read in the order of the data. All arguments must outlive this object.
  BucketWindows(Session& session, LengthBuckets& buckets, ColumnSource& source, const Settings& settings);

  const RunCut& cut() const override { return cut_; }
  bool switches_plans() const override { return true; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

  // Memory for one sample of the arrays' length.
  static Bytes staging_bytes(const ColumnSource& source);

 private:
  Status read_sample(int64_t sample, int64_t at, const BatchBuffers& into);

  Session& session_;
  LengthBuckets& buckets_;
  ColumnSource& source_;
  Settings settings_;
  RunCut cut_;
  int64_t ordered_epoch_ = -1, window_ = 0;
  LengthGroups::Place place_;
  std::vector<std::vector<std::byte>> staged_;  // inputs, then targets: one sample
  std::vector<float> weights_;
  BatchBuffers sample_;
};

}  // namespace plimsoll::engine
