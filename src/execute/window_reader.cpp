#include "execute/window_reader.h"

#include <sys/mman.h>

#include <algorithm>

#include "execute/callbacks.h"
#include "execute/window.h"

namespace plimsoll::engine {

RunCut unknown_cut(const BatchPlan& batch) {
  return {kMostSteps, kMostSteps, batch};
}

bool is_unknown(const RunCut& cut) {
  return cut.windows == kMostSteps;
}

// Memory for the prefetcher, from the plan's data share.
class PositionReader::Staging {
 public:
  explicit Staging(Bytes bytes) : bytes_(bytes) {
    if (bytes > 0)
      base_ = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Staging() {
    if (bytes_ > 0 && base_ != MAP_FAILED) munmap(base_, static_cast<size_t>(bytes_));
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  bool failed() const { return base_ == MAP_FAILED; }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(base_), static_cast<size_t>(bytes_)}; }

 private:
  void* base_ = nullptr;
  Bytes bytes_;
};

PositionReader::PositionReader(BatchSource& data, const BatchPlan& batch, int64_t windows, int ahead)
    : data_(data), cut_{data.samples(), 0, batch}, ahead_(ahead) {
  if (batch.effective <= 0 || batch.micro <= 0) return;
  const int64_t all = (cut_.samples + batch.effective - 1) / batch.effective;
  cut_.windows = windows > 0 ? std::min(all, windows) : all;
}

PositionReader::~PositionReader() = default;

DataTimes PositionReader::times() const {
  return prefetcher_ ? prefetcher_->times() : DataTimes();
}

Status PositionReader::start(int64_t epochs, const CutPosition& from) {
  const int64_t most = cut_.batch.micro;
  reading_.emplace(cut_, epochs, from);
  staging_ = std::make_unique<Staging>(Prefetcher::staging_bytes(data_, ahead_, most));
  if (staging_->failed())
    return fail(ErrorCode::kOutOfMemory, "the system is out of memory: no memory for the input pipeline");
  PLIMSOLL_ASSIGN(prefetcher_, Prefetcher::start(
                                   data_, [this] { return reading_->next(); }, ahead_, most, staging_->span()));
  return {};
}

Result<std::optional<int64_t>> PositionReader::next_window(int64_t /*epoch*/, int64_t window) {
  if (window >= cut_.windows) return std::nullopt;
  return cut_.window_size(window);
}

Status PositionReader::read(const BatchRequest& request, const BatchBuffers& into) {
  return read_cut(*prefetcher_, request, into);
}

}  // namespace plimsoll::engine
