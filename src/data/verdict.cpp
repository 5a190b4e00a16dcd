#include "data/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll::engine {
namespace {

// Rows of decoded sources are decoded, or read from the cache; both wait for a disk. The largest part has the name.
std::string largest_part(const DataTimes& times, const CachePlan* cache) {
  const RowTimes& rows = times.rows;
  if (cache == nullptr || (rows.records == 0 && rows.cached == 0)) return "reading the data files";
  if (rows.cached_seconds > rows.seconds) return "reading the cache of pictures";
  return rows.file_seconds > rows.seconds / 2 ? "reading the pictures' files" : cache->work;
}

// Of reading and decoding, on one thread: seconds per record.
double seconds_per_record(const RowTimes& rows) {
  return rows.records > 0 ? rows.seconds / static_cast<double>(rows.records) : 0;
}

bool feeds(double seconds_per_sample, double device_rate) {
  return seconds_per_sample * device_rate <= 1;
}

}  // namespace

DataVerdict judge_data(const DataTimes& times, double seconds, const CachePlan* cache) {
  DataVerdict verdict;
  if (times.samples == 0 || seconds <= 0) return verdict;
  const auto samples = static_cast<double>(times.samples);
  verdict.idle = std::clamp(times.consumer / seconds, 0.0, 1.0);
  verdict.threads = times.readers;
  verdict.rate = times.reading > 0 ? samples / times.reading : 0;
  verdict.device_rate = samples / std::max(seconds - times.consumer, 1e-9);
  verdict.waited_for = largest_part(times, cache);
  const double per_record = seconds_per_record(times.rows);
  if (cache == nullptr || per_record <= 0) return verdict;
  verdict.threads_needed = std::max(1, static_cast<int>(std::min(std::ceil(per_record * verdict.device_rate), 1e6)));
  const bool holds_all = cache->used && cache->kept == cache->records;
  if (holds_all || cache->row_bytes == 0) return verdict;
  // With bytes instead of floats, a row takes a quarter of the disk and of the time to read it.
  for (const bool rounds : {false, true}) {
    const bool packed = rounds || cache->rounds || cache->row_bytes == cache->elements;
    const Bytes row = packed ? cache->elements : cache->row_bytes;
    const double read = cache->read_seconds * static_cast<double>(row) / static_cast<double>(cache->row_bytes);
    if (!feeds(read, verdict.device_rate) || read >= per_record) continue;
    verdict.cache_bytes = cache->records * row;
    verdict.rounds = rounds && row != cache->row_bytes;
    break;
  }
  return verdict;
}

std::string DataVerdict::text(int cores) const {
  std::string text =
      fmt::format("device idle {:.0f} %: waiting for {} ({} {}, {:.0f} samples/s; the device takes {:.0f})", 100 * idle,
                  waited_for, threads, threads == 1 ? "thread" : "threads", rate, device_rate);
  std::string remedies;
  if (threads_needed && *threads_needed > threads)
    remedies += *threads_needed <= cores
                    ? fmt::format("{0} threads would feed it (--data-threads {0})", *threads_needed)
                    : fmt::format("{} threads would feed it, but this machine has {} cores", *threads_needed, cores);
  if (cache_bytes)
    remedies +=
        fmt::format("{}a cache of {} would{} from epoch 2 (--cache-images {}MiB{})", remedies.empty() ? "" : "; ",
                    format_bytes(*cache_bytes), remedies.empty() ? " feed it" : "", (*cache_bytes + kMiB - 1) / kMiB,
                    rounds ? " --cache-pixels uint8" : "");
  return remedies.empty() ? text : text + ". " + remedies;
}

}  // namespace plimsoll::engine
