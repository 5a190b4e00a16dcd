#include "formats/tensorboard/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "formats/file/file.h"
#include "formats/saved_model/tensor_bundle.h"

namespace plimsoll::engine {
namespace {

constexpr int kMostBins = 30;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

template <typename Word>
void put_fixed(std::string& to, Word value) {
  for (size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i));
}

void put_double(std::string& to, int field, double value) {
  put_varint(to, static_cast<uint64_t>(field) << 3 | 1);
  put_fixed(to, std::bit_cast<uint64_t>(value));
}

void put_text(std::string& to, int field, std::string_view text) {
  put_varint(to, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(to, text.size());
  to += text;
}

uint32_t checksum(std::string_view text) {
  return masked_crc(crc32c(0, std::as_bytes(std::span(text.data(), text.size()))));
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

// HistogramProto: {min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7}
std::string histogram_proto(std::span<const float> values) {
  double least = INFINITY, most = -INFINITY, sum = 0, squares = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min<double>(least, value);
    most = std::max<double>(most, value);
    sum += value;
    squares += static_cast<double>(value) * value;
    ++count;
  }
  std::string proto;
  if (count == 0) return proto;
  const double width = most > least ? (most - least) / kMostBins : 1;
  std::array<double, kMostBins> bins{};
  for (const float value : values)
    if (std::isfinite(value)) ++bins[static_cast<size_t>(std::min((value - least) / width, kMostBins - 1.0))];
  put_double(proto, 1, least);
  put_double(proto, 2, most);
  put_double(proto, 3, static_cast<double>(count));
  put_double(proto, 4, sum);
  put_double(proto, 5, squares);
  std::string limits, counts;
  for (int i = 0; i < kMostBins; ++i) {
    put_fixed(limits, std::bit_cast<uint64_t>(i + 1 == kMostBins && most > least ? most : least + width * (i + 1)));
    put_fixed(counts, std::bit_cast<uint64_t>(bins[static_cast<size_t>(i)]));
  }
  put_text(proto, 6, limits);  // packed
  put_text(proto, 7, counts);
  return proto;
}

}  // namespace

Result<EventFile> EventFile::create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string host = host_name();
  EventFile made;
  // Two runs of one second have different process ids; one process numbers its files.
  static int number = 0;
  made.path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.{}.v2", folder, static_cast<int64_t>(now()), host, getpid(),
                           number++);
  const int fd = ::open(made.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fail(write_error(errno, made.path_, fmt::format("creating {}", made.path_)));
  made.file_.reset(::fdopen(fd, "w"));
  if (!made.file_) return fail(write_error(errno, made.path_, fmt::format("creating {}", made.path_)));
  put_double(made.event_, 1, now());
  put_text(made.event_, 3, "brain.Event:2");  // file_version
  made.record(made.event_);
  made.flush();
  PLIMSOLL_TRY(made.failed());
  return made;
}

// Summary.Value: {tag = 1, simple_value = 2, histo = 5}
void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  summary_.clear();
  put_text(summary_, 1, tag);
  put_varint(summary_, 2 << 3 | 5);
  put_fixed(summary_, std::bit_cast<uint32_t>(static_cast<float>(value)));
  event(step, summary_);
}

void EventFile::histogram(std::string_view tag, int64_t step, std::span<const float> values) {
  const std::string proto = histogram_proto(values);
  if (proto.empty()) return;
  summary_.clear();
  put_text(summary_, 1, tag);
  put_text(summary_, 5, proto);
  event(step, summary_);
}

// Event: {wall_time = 1, step = 2, file_version = 3, summary = 5}; Summary: {value = 1}
void EventFile::event(int64_t step, std::string_view value) {
  event_.clear();
  put_double(event_, 1, now());
  put_varint(event_, 2 << 3);
  put_varint(event_, static_cast<uint64_t>(step));
  framed_.clear();
  put_text(framed_, 1, value);
  put_text(event_, 5, framed_);
  record(event_);
}

void EventFile::record(std::string_view payload) {
  framed_.clear();
  put_fixed(framed_, static_cast<uint64_t>(payload.size()));
  put_fixed(framed_, checksum(framed_));
  framed_ += payload;
  put_fixed(framed_, checksum(payload));
  failed_ = failed_ || std::fwrite(framed_.data(), 1, framed_.size(), file_.get()) != framed_.size();
}

void EventFile::flush() {
  failed_ = std::fflush(file_.get()) != 0 || failed_;
}

Status EventFile::failed() const {
  if (!failed_) return {};
  return fail(Error{ErrorCode::kWriteFailed,
                    fmt::format("{}: the event file could not be written", path_),
                    {},
                    {"free space on that disk, or write elsewhere with --tensorboard"}});
}

}  // namespace plimsoll::engine
