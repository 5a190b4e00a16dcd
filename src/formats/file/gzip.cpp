#include "formats/file/gzip.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "formats/file/cache.h"
#include "formats/file/cache_size.h"
#include "formats/file/inflate.h"

namespace plimsoll::engine {

bool is_gzip(std::string_view start) {
  return start.starts_with("\x1f\x8b");
}

namespace {

Error damaged(const File& file, std::string_view what, int64_t at) {
  return {ErrorCode::kBadDataFile, fmt::format("{}: {}, at byte {}", file.path(), what, at), {}, {}};
}

class Unpacker {
 public:
  Unpacker(const File& file, int64_t most, const Sink& sink)
      : file_(file), most_(most), sink_(sink), out_(static_cast<size_t>(kStreamBuffer)) {}

  Status run() {
    inflater_ = Inflater::create(DeflateWrapper::kGzip);
    if (!inflater_) return fail(ErrorCode::kOutOfMemory, "no memory to unpack " + file_.path());
    PLIMSOLL_TRY(file_.stream(0, file_.size(), [&](std::span<const std::byte> piece) { return take(piece); }));
    if (inside_) return fail(damaged(file_, "the gzipped data are cut short", file_.size()));
    return {};
  }

 private:
  Status take(std::span<const std::byte> piece) {
    for (bool more = !piece.empty(); more;) {
      inside_ = true;
      const Inflater::Step step = inflater_->step(piece, out_);
      piece = piece.subspan(step.used);
      read_ += static_cast<int64_t>(step.used);
      const bool stuck = step.state == Inflater::State::kMore && step.used == 0 && step.made == 0 && !piece.empty();
      if (step.state == Inflater::State::kDamaged || stuck)
        return fail(damaged(file_, "the gzipped data are damaged", read_));
      written_ += static_cast<int64_t>(step.made);
      if (written_ > most_)
        return fail(damaged(file_, fmt::format("unpacked it has more than {}", format_bytes(most_)), read_));
      PLIMSOLL_TRY(sink_(std::span(out_).first(step.made)));
      more = !piece.empty() || (step.state == Inflater::State::kMore && step.made == out_.size());
      if (step.state != Inflater::State::kEnd) continue;
      inside_ = false;  // another member may follow
      inflater_->reset();
    }
    return {};
  }

  const File& file_;
  const int64_t most_;
  const Sink& sink_;
  std::vector<std::byte> out_;
  std::unique_ptr<Inflater> inflater_;
  int64_t read_ = 0, written_ = 0;
  bool inside_ = true;  // a file without any member is cut short
};

}  // namespace

Status gunzip(const File& file, int64_t most, const Sink& sink) {
  return Unpacker(file, most, sink).run();
}

Result<std::string> unpacked_file(const File& file) {
  const auto fill = [&](const std::string& path) -> Status {
    PLIMSOLL_ASSIGN(AtomicFile out, AtomicFile::create(path));
    PLIMSOLL_TRY(gunzip(file, cache_size(), [&](std::span<const std::byte> piece) { return out.write(piece); }));
    return out.commit();
  };
  return cached_file(file, "unpacked", fill);
}

}  // namespace plimsoll::engine
