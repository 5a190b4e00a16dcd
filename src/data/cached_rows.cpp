#include "data/cached_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "formats/file/cache.h"

namespace plimsoll::engine {
namespace {

// Rates that prices are computed from. They were measured on a cloud disk: 889 MB/s read in order, 308 MB/s written and
// synced, 6 GB/s copied out of the page cache.
constexpr double kDiskRead = 800e6, kDiskWrite = 300e6, kPageCopy = 6e9, kConvert = 6e9;
// A cache must save more than a measurement of its price can be wrong.
constexpr double kClearGain = 1.25;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void round_row(float* row, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) row[i] = std::nearbyint(row[i]);
}

}  // namespace

CachePlan plan_cache(const CacheOptions& options, const Decoding& decoding, int64_t records, int64_t elements,
                     Bytes room) {
  CachePlan plan;
  plan.work = decoding.work;
  plan.records = records;
  plan.elements = elements;
  plan.rounds = options.round_pixels && !decoding.whole_numbers;
  const bool bytes = decoding.whole_numbers || options.round_pixels;
  plan.row_bytes = elements * (bytes ? 1 : static_cast<Bytes>(sizeof(float)));
  const Bytes most = options.most > 0 ? std::min(options.most, room) : room / 2;
  plan.kept = std::min({records, most / std::max<Bytes>(plan.row_bytes, 1), int64_t{UINT32_MAX} - 2});
  plan.asked = options.when != CacheOptions::When::kOff;
  plan.pages_stay = (plan.kept > 0 ? plan.kept : records) * plan.row_bytes <= options.page_room;
  const auto row = static_cast<double>(plan.row_bytes);
  plan.make_seconds = decoding.seconds;
  plan.read_seconds = row / (plan.pages_stay ? kPageCopy : kDiskRead) + static_cast<double>(elements) / kConvert;
  plan.write_seconds = row / kDiskWrite;
  if (options.when == CacheOptions::When::kOff) {
    plan.why = "--cache-images off";
  } else if (options.epochs < 2) {
    plan.why = "each picture is read once";
  } else if (plan.kept < 1) {
    plan.why = "the disk or --cache-images has no room for one picture";
  } else if (options.when == CacheOptions::When::kAlways) {
    plan.used = true;
  } else {
    const double saved = plan.make_seconds - kClearGain * plan.read_seconds;
    plan.used = saved > 0 && static_cast<double>(options.epochs - 1) * saved > plan.write_seconds;
    if (!plan.used)
      plan.why = saved <= 0 ? "reading them from the disk would take as long as decoding them"
                            : fmt::format("writing them takes longer than {} epochs save", options.epochs - 1);
  }
  return plan;
}

std::string cache_text(const CachePlan& plan) {
  const auto per = [](double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); };
  if (!plan.used)
    return fmt::format("Pictures are decoded in each epoch ({}, about {} per picture) and not cached: {}.", plan.work,
                       per(plan.make_seconds), plan.why);
  return fmt::format(
      "Pictures are decoded once: up to {} of disk in {} keep {} of {} from epoch 2 on ({}), about {} per picture "
      "instead of {} ({}).",
      format_bytes(plan.disk_bytes()), plan.folder, plan.kept == plan.records ? "all" : fmt::format("{}", plan.kept),
      plan.records, plan.rounds ? "pixels rounded to bytes" : "exact pixels", per(plan.read_seconds),
      per(plan.make_seconds), plan.work);
}

CachedRows::CachedRows(std::shared_ptr<RowSource> inner, size_t field, int64_t records, int64_t elements,
                       const CacheOptions& options, std::function<void(const std::string&)> note)
    : inner_(std::move(inner)),
      field_(field),
      elements_(elements),
      round_(options.round_pixels),
      note_(std::move(note)),
      places_(static_cast<size_t>(records), kNone) {
  plan_.records = records;
  open(options);
}

// Whether the cache is used depends on the disk, but its memory does not: so a run that is resumed has the same plan.
void CachedRows::open(const CacheOptions& options) {
  const Decoding decoding = inner_->decoding(field_).value_or(Decoding());
  as_bytes_ = decoding.whole_numbers || round_;
  packed_.resize(as_bytes_ ? static_cast<size_t>(elements_) : 0);
  Result<std::string> folder = options.folder.empty() ? cache_folder() : Result<std::string>(options.folder);
  auto file = folder ? ScratchFile::create(*folder) : Result<ScratchFile>(tl::make_unexpected(folder.error()));
  const Bytes room = file ? file->room() : 0;
  plan_ = plan_cache(options, decoding, plan_.records, elements_, room);
  if (!file && options.when != CacheOptions::When::kOff && options.epochs > 1) plan_.why = file.error().what;
  if (!plan_.used) return;
  plan_.folder = *folder;
  most_ = static_cast<uint32_t>(plan_.kept);
  file->keep_pages(plan_.pages_stay);
  file_.emplace(std::move(*file));
}

Bytes CachedRows::bytes() const {
  return inner_->bytes() + static_cast<Bytes>(places_.capacity() * sizeof(uint32_t) + packed_.capacity());
}

RowTimes CachedRows::times() const {
  RowTimes times = inner_->times();
  const std::lock_guard lock(mutex_);
  times.cached = cached_.cached;
  times.cached_seconds = cached_.cached_seconds;
  return times;
}

uint32_t CachedRows::place_of(int64_t record) {
  const std::lock_guard lock(mutex_);
  return broken_ ? kNone : places_[static_cast<size_t>(record)];
}

Status CachedRows::read(size_t field, int64_t record, void* into) {
  if (field != field_) return inner_->read(field, record, into);
  auto* const row = static_cast<float*>(into);
  const uint32_t place = place_of(record);
  if (place < kBeingWritten) {
    const double start = now();
    const Status status = fetch(place, row);
    if (status) {
      const std::lock_guard lock(mutex_);
      cached_.cached_seconds += now() - start;
      ++cached_.cached;
      return {};
    }
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    give_up(status.error().what);
  }
  PLIMSOLL_TRY(inner_->read(field, record, into));
  if (round_) round_row(row, elements_);
  if (place == kNone) keep(record, row);
  return {};
}

// Bytes are read to the end of the row's memory, and spread from there in pieces that are copied out first.
Status CachedRows::fetch(uint32_t place, float* into) {
  auto* const memory = reinterpret_cast<std::byte*>(into);
  const auto row = static_cast<size_t>(plan_.row_bytes);
  if (!as_bytes_) return file_->read(static_cast<int64_t>(place) * plan_.row_bytes, {memory, row});
  std::byte* const packed = memory + static_cast<size_t>(elements_) * sizeof(float) - row;
  PLIMSOLL_TRY(file_->read(static_cast<int64_t>(place) * plan_.row_bytes, {packed, row}));
  std::array<uint8_t, 1024> piece;
  for (size_t done = 0; done < row; done += piece.size()) {
    const size_t count = std::min(piece.size(), row - done);
    std::memcpy(piece.data(), packed + done, count);
    for (size_t i = 0; i < count; ++i) into[done + i] = static_cast<float>(piece[i]);
  }
  return {};
}

void CachedRows::keep(int64_t record, const float* row) {
  uint32_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    uint32_t& entry = places_[static_cast<size_t>(record)];
    if (!file_ || broken_ || next_ == most_ || entry != kNone) return;
    entry = kBeingWritten;
    place = next_++;
  }
  const Status written = write(place, row);
  {
    const std::lock_guard lock(mutex_);
    places_[static_cast<size_t>(record)] = written ? place : kNone;
    if (written)
      ++kept_;
    else
      most_ = next_;  // no further row is written
  }
  if (!written) give_up(written.error().what);
}

Status CachedRows::write(uint32_t place, const float* row) {
  const int64_t offset = static_cast<int64_t>(place) * plan_.row_bytes;
  if (!as_bytes_) return file_->write(offset, std::as_bytes(std::span(row, static_cast<size_t>(elements_))));
  const std::lock_guard lock(writing_);
  auto* const to = reinterpret_cast<uint8_t*>(packed_.data());
  for (int64_t i = 0; i < elements_; ++i) to[i] = static_cast<uint8_t>(row[i]);
  return file_->write(offset, packed_);
}

void CachedRows::give_up(const std::string& what) {
  int64_t kept = 0;
  {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    told_ = true;
    kept = broken_ ? 0 : kept_;
  }
  if (note_)
    note_(fmt::format("note: {}; the training goes on, with {} of {} decoded pictures in the cache", what, kept,
                      plan_.records));
}

}  // namespace plimsoll::engine
