// Messages of XLA, as JAX and compiled Keras print them: the refused request, the sums of a buffer assignment, its
// largest buffers, and the compiler's report for a TPU.
#include <algorithm>

#include "explain/cursor.h"
#include "explain/facts.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMostBuffers = 16;

XlaFailure* open_failure(Facts& facts, const Window& window) {
  for (auto failure = facts.xla.rbegin(); failure != facts.xla.rend(); ++failure)
    if (failure->seen.stream == window.seen.stream) return &*failure;
  return add_fact(facts.xla, XlaFailure{.seen = window.seen,
                                        .requested = {},
                                        .parameters = {},
                                        .outputs = {},
                                        .temporaries = {},
                                        .total = {},
                                        .used = {},
                                        .capacity = {},
                                        .exceeded = {},
                                        .buffers = {},
                                        .totals = {}});
}

// "Out of memory while trying to allocate 6291456 bytes", "Out of memory allocating 6291456 bytes"
void read_request(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("out of memory");
  if (!cursor.eat("while trying to allocate") && !cursor.eat("allocating")) return;
  const auto bytes = cursor.size();
  if (!bytes) return;
  XlaFailure failure{};
  failure.seen = window.seen;
  failure.requested = bytes;
  add_fact(facts.xla, std::move(failure));
}

// "maybe_live_out allocation:    9.64GiB"
void read_part(Facts& facts, const Window& window, Size XlaFailure::*part) {
  XlaFailure* failure = open_failure(facts, window);
  Cursor cursor(window.after);
  if (failure == nullptr || !cursor.find("allocation:", 60)) return;
  if (!(failure->*part)) failure->*part = cursor.size();
  if (!failure->totals) failure->totals = window.seen;
}

void read_parameters(Facts& facts, const Window& window) {
  read_part(facts, window, &XlaFailure::parameters);
}

void read_outputs(Facts& facts, const Window& window) {
  read_part(facts, window, &XlaFailure::outputs);
}

void read_temporaries(Facts& facts, const Window& window) {
  read_part(facts, window, &XlaFailure::temporaries);
}

void read_total(Facts& facts, const Window& window) {
  read_part(facts, window, &XlaFailure::total);
}

// "Used 63.80G of 30.75G hbm. Exceeded hbm capacity by 33.05G."
void read_tpu(Facts& facts, const Window& window) {
  XlaFailure failure{};
  failure.seen = window.seen;
  failure.tpu = true;
  Cursor cursor(window.after);
  if (!cursor.find("used", 60)) return;
  failure.used = cursor.size();
  if (!cursor.eat("of")) return;
  failure.capacity = cursor.size();
  if (cursor.find("capacity by", 60)) failure.exceeded = cursor.size();
  if (failure.used && failure.capacity) add_fact(facts.xla, std::move(failure));
}

// The list of the largest buffers: "Size: 2.00GiB", a few lines on "Shape: f32[32,4096,4096]".
void read_buffer(Facts& facts, const Window& window) {
  if (facts.xla.empty()) return;
  XlaFailure* failure = open_failure(facts, window);
  Cursor cursor(window.after);
  if (failure == nullptr || failure->buffers.size() >= kMostBuffers || !cursor.eat("size:")) return;
  const auto bytes = cursor.size();
  if (!bytes || *bytes < kMiB || !cursor.find("shape:", 500)) return;
  failure->buffers.emplace_back(cursor.word("{"), *bytes);
}

void read_recompute(Facts& facts, const Window& window) {
  if (facts.xla.empty()) return;
  if (XlaFailure* failure = open_failure(facts, window)) failure->recomputes = true;
}

}  // namespace

void add_xla_phrases(std::vector<Phrase>& phrases) {
  const Phrase ours[] = {
      {"out of memory while trying to allocate", 120, read_request},
      {"out of memory allocating", 120, read_request},
      {"parameter allocation:", 80, read_parameters},
      {"maybe_live_out allocation:", 80, read_outputs},
      {"preallocated temp allocation:", 90, read_temporaries},
      {"total allocation:", 80, read_total},
      {"ran out of memory in memory space hbm", 260, read_tpu},
      {"size:", 700, read_buffer},
      {".remat", 40, read_recompute},
  };
  phrases.insert(phrases.end(), std::begin(ours), std::end(ours));
}

}  // namespace plimsoll::engine::explain
