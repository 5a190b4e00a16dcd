#include "formats/file/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <memory>
#include <vector>

#include "formats/file/cache.h"
#include "formats/file/cache_size.h"

namespace plimsoll::engine {

bool is_gzip(std::string_view start) {
  return start.starts_with("\x1f\x8b");
}

namespace {

constexpr int kWindowOfGzip = 15 + 16;  // zlib expects a gzip header

struct EndInflate {
  void operator()(z_stream* stream) const { ::inflateEnd(stream); }
};

Error damaged(const File& file, std::string_view what, int64_t at) {
  return {ErrorCode::kBadDataFile, fmt::format("{}: {}, at byte {}", file.path(), what, at), {}, {}};
}

class Unpacker {
 public:
  Unpacker(const File& file, int64_t most, const Sink& sink)
      : file_(file), most_(most), sink_(sink), out_(static_cast<size_t>(kStreamBuffer)) {}

  Status run() {
    if (::inflateInit2(&stream_, kWindowOfGzip) != Z_OK) return fail(ErrorCode::kOutOfMemory, "zlib could not start");
    const std::unique_ptr<z_stream, EndInflate> ends(&stream_);
    PLIMSOLL_TRY(file_.stream(0, file_.size(), [&](std::span<const std::byte> piece) { return take(piece); }));
    if (inside_) return fail(damaged(file_, "the gzipped data are cut short", file_.size()));
    return {};
  }

 private:
  Status take(std::span<const std::byte> piece) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    bool more = stream_.avail_in > 0;
    while (more) {
      inside_ = true;
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      const int state = ::inflate(&stream_, Z_NO_FLUSH);
      const int64_t at = read_ + static_cast<int64_t>(piece.size()) - stream_.avail_in;
      if (state == Z_BUF_ERROR) break;  // it needs the next piece
      if (state != Z_OK && state != Z_STREAM_END) return fail(damaged(file_, "the gzipped data are damaged", at));
      const size_t got = out_.size() - stream_.avail_out;
      written_ += static_cast<int64_t>(got);
      if (written_ > most_)
        return fail(damaged(file_, fmt::format("unpacked it has more than {}", format_bytes(most_)), at));
      PLIMSOLL_TRY(sink_(std::span(out_).first(got)));
      more = stream_.avail_in > 0 || (state == Z_OK && stream_.avail_out == 0);
      if (state != Z_STREAM_END) continue;
      inside_ = false;  // another member may follow
      ::inflateReset(&stream_);
    }
    read_ += static_cast<int64_t>(piece.size());
    return {};
  }

  const File& file_;
  const int64_t most_;
  const Sink& sink_;
  std::vector<std::byte> out_;
  z_stream stream_{};
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
