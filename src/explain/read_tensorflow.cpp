// TensorFlow's allocators, from 1.x to 2.21. The head of a dump has no blank before "requested by op"; newer versions
// print the statistics in human units.
#include <algorithm>

#include "explain/cursor.h"
#include "explain/facts.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kHead = 700, kStatistics = 500, kChunk = 90;

// Returns the dump of this stream that was begun last.
PoolFailure* open_dump(Facts& facts, const Window& window) {
  for (auto pool = facts.pools.rbegin(); pool != facts.pools.rend(); ++pool)
    if (pool->seen.stream == window.seen.stream && !pool->harmless) return &*pool;
  return nullptr;
}

// The same for a line that only a dump has: its head may have been cut off.
PoolFailure* any_dump(Facts& facts, const Window& window) {
  if (PoolFailure* open = open_dump(facts, window)) return open;
  PoolFailure failure;
  failure.seen = window.seen;
  return add_fact(facts.pools, std::move(failure));
}

// The name in "Allocator (GPU_0_bfc)", which may be wrapped.
std::string allocator_before(std::string_view before) {
  std::string text(before);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  const size_t open = text.rfind("llocator(");
  if (open == std::string::npos) return "";
  const size_t name = open + 9;
  return text.substr(name, text.find(')', name) - name);
}

void read_failure(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("ran out of memory trying to allocate");
  PoolFailure failure;
  failure.seen = window.seen;
  failure.allocator = allocator_before(window.before);
  failure.requested = cursor.size();
  Cursor rounded = cursor;
  if (rounded.eat("(rounded to")) {
    if (const auto exact = rounded.whole()) {
      failure.requested = exact;
      failure.requested_exact = true;
    }
    cursor = rounded;
  }
  Cursor note = cursor;
  failure.harmless = note.find("caller indicates that this is not a failure", 160);
  Cursor op = cursor;
  if (op.find("requested by op", 40)) failure.op = op.word("<(");
  add_fact(facts.pools, std::move(failure));
}

// A dump whose head was cut off still says what was in use.
void read_dump_begin(Facts& facts, const Window& window) {
  if (open_dump(facts, window) != nullptr) return;
  PoolFailure failure;
  failure.seen = window.seen;
  Cursor cursor(window.after);
  cursor.eat("bfcallocator dump for");
  failure.allocator = cursor.word();
  add_fact(facts.pools, std::move(failure));
}

void read_in_use_chunk(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("of size", 40)) return;
  const auto size = cursor.whole();
  if (PoolFailure* pool = size ? any_dump(facts, window) : nullptr) pool->listed.add(*size, 1);
}

void read_free_chunk(Facts& facts, const Window& window) {
  PoolFailure* pool = open_dump(facts, window);
  Cursor cursor(window.after);
  if (pool == nullptr || !cursor.find("of size", 40)) return;
  const auto size = cursor.whole();
  if (!size || *size > INT64_MAX - pool->free_total) return;
  pool->free_total += *size;
  pool->free_largest = std::max(pool->free_largest, *size);
  ++pool->free_count;
}

void read_chunk_total(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("chunks of size");
  const auto size = cursor.whole();
  if (!size || !cursor.eat("totalling")) return;
  PoolFailure* pool = any_dump(facts, window);
  if (pool == nullptr) return;
  const size_t last = window.before.find_last_not_of(" \n");
  if (last == std::string_view::npos) return;
  size_t first = last + 1;
  while (first > 0 && window.before[first - 1] >= '0' && window.before[first - 1] <= '9') --first;
  if (const auto count = Cursor(window.before.substr(first, last + 1 - first)).whole()) pool->totals.add(*size, *count);
}

void read_statistics(Facts& facts, const Window& window) {
  PoolFailure* pool = open_dump(facts, window);
  Cursor cursor(window.after);
  if (pool == nullptr || pool->in_use || !cursor.eat("limit:")) return;
  const auto limit = cursor.size();
  if (!limit || !cursor.find("inuse:", 60)) return;
  pool->limit = limit;
  pool->in_use = cursor.size();
  if (cursor.find("maxinuse:", 60)) pool->max_in_use = cursor.size();
  pool->stats = window.seen;
}

// "total_region_allocated_bytes_: 1 memory_limit_: 2", "Total bytes in pool: 1 memory_limit_: 2",
// "Total size in pool: 4.00GiB memory limit: 23.54GiB"
void read_region(Facts& facts, const Window& window) {
  PoolFailure* pool = open_dump(facts, window);
  Cursor cursor(window.after);
  if (pool == nullptr || pool->region || !cursor.find(":", 40)) return;
  pool->region = cursor.size();
  if (!pool->limit && cursor.find("limit", 40) && cursor.find(":", 4)) {
    pool->limit = cursor.size();
    pool->stats = window.seen;
  }
}

Bytes dtype_bytes(const std::string& dtype) {
  for (const char* const name : {"double", "int64", "uint64", "complex64", "float64"})
    if (dtype == name) return 8;
  for (const char* const name : {"half", "bfloat16", "float16", "int16", "uint16"})
    if (dtype == name) return 2;
  for (const char* const name : {"int8", "uint8", "bool"})
    if (dtype == name) return 1;
  if (dtype == "complex128") return 16;
  return dtype == "float" || dtype == "float32" || dtype == "int32" || dtype == "uint32" ? 4 : 0;
}

void read_tensor(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("shape", 48)) return;
  TensorFailure failure;
  failure.seen = window.seen;
  const auto dims = cursor.dims();
  if (!dims) return;
  failure.dims = *dims;
  if (cursor.eat("and type")) failure.dtype = cursor.word();
  if (cursor.eat("on /")) failure.device = cursor.word();
  if (cursor.find("[op:", 200)) failure.op = cursor.word("]");
  const Bytes width = dtype_bytes(failure.dtype);
  if (width > 0 && elements_of(failure.dims) <= INT64_MAX / width) failure.bytes = elements_of(failure.dims) * width;
  // The eager error of Python names the operation; TensorFlow 1 names the node.
  if (Cursor node(window.after); failure.op.empty() && node.find("[[node", 320)) failure.op = node.word("]=(");
  add_fact(facts.tensors, std::move(failure));
}

// "failed to allocate 8.41G (9029127168 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"
void read_device_refusal(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.eat("failed to allocate") && !cursor.eat("failed to alloc")) return;
  auto bytes = cursor.size();
  if (!bytes) return;
  if (cursor.eat("("))
    if (const auto exact = cursor.whole()) bytes = exact;
  Cursor kind = cursor;
  if (kind.find("on host", 48) || Cursor(kind.rest()).find("host memory", 80)) {
    add_fact(facts.pinned_refusals, {window.seen, *bytes});
  } else if (Cursor from = cursor; from.find("from device", 48) || cursor.find("cuda_error_out_of_memory", 160)) {
    add_fact(facts.device_refusals, {window.seen, *bytes});
  }
}

void read_pinned_refusal(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("size:", 60)) return;
  if (const auto bytes = cursor.size()) add_fact(facts.pinned_refusals, {window.seen, *bytes});
}

// "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 9613 MB memory"
void read_device(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("gpu:", 110) || !cursor.find("with", 12)) return;
  const auto bytes = cursor.size();
  if (bytes && cursor.eat("memory")) add_fact(facts.devices, {window.seen, *bytes});
}

void read_device_total(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find(":", 24)) return;
  if (const auto bytes = cursor.size()) add_fact(facts.device_totals, {window.seen, *bytes});
}

// cudaMallocAsync: "failed to allocate 1225195446464 bytes: CUDA error: out of memory" and "Limit: 0"
void read_async(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("failed to allocate", 80)) return;
  if (const auto bytes = cursor.size()) {
    PoolFailure failure;
    failure.seen = window.seen;
    failure.allocator = "cuda_malloc_async";
    failure.requested = bytes;
    failure.requested_exact = true;
    add_fact(facts.pools, std::move(failure));
  }
}

void read_dst_tensor(Facts& facts, const Window& window) {
  add_fact(facts.disguises, {window.seen, "Dst tensor"});
}

void read_library_handle(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (cursor.find("cudnn_status_not_initialized", 120) || Cursor(window.after).find("internal_error", 120) ||
      Cursor(window.after).find("alloc_failed", 120) || Cursor(window.after).find("not_initialized", 120) ||
      Cursor(window.after).find("resource allocation failed", 160))
    add_fact(facts.disguises, {window.seen, "library handle"});
}

void read_convolution_algorithm(Facts& facts, const Window& window) {
  add_fact(facts.disguises, {window.seen, "library handle"});
}

void read_library_allocation(Facts& facts, const Window& window) {
  add_fact(facts.disguises, {window.seen, "library allocation"});
}

void read_validation_split(Facts& facts, const Window&) {
  facts.validates = true;
}

}  // namespace

void add_tensorflow_phrases(std::vector<Phrase>& phrases) {
  const Phrase ours[] = {
      {"ran out of memory trying to allocate", kHead, read_failure},
      {"bfcallocator dump for", kChunk, read_dump_begin},
      {"inuse at", kChunk, read_in_use_chunk},
      {"chunk at 0x", kChunk, read_in_use_chunk},
      {"free at", kChunk, read_free_chunk},
      {"chunks of size", kChunk, read_chunk_total},
      {"limit:", kStatistics, read_statistics},
      {"total_region_allocated_bytes_", 200, read_region},
      {"total bytes in pool", 200, read_region},
      {"total size in pool", 200, read_region},
      {"oom when allocating tensor", kHead, read_tensor},
      {"failed to alloc", 260, read_device_refusal},
      {"could not allocate pinned", 160, read_pinned_refusal},
      {"created device /job", 200, read_device},
      {"created tensorflow device", 220, read_device},
      {"totalmemory:", 60, read_device_total},
      {"devicememorysize:", 60, read_device_total},
      {"cudamallocasync_allocator.cc", 220, read_async},
      {"dst tensor is not initialized", kChunk, read_dst_tensor},
      {"could not create cudnn handle", 220, read_library_handle},
      {"failed to create cublas handle", 220, read_library_handle},
      {"cublascreate(handle)", 220, read_library_handle},
      {"failed to get convolution algorithm", kChunk, read_convolution_algorithm},
      {"cudnn_status_alloc_failed", kChunk, read_library_allocation},
      {"cublas_status_alloc_failed", kChunk, read_library_allocation},
      {"validation_split", kChunk, read_validation_split},
  };
  phrases.insert(phrases.end(), std::begin(ours), std::end(ours));
}

}  // namespace plimsoll::engine::explain
