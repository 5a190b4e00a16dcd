#include "data/dataset.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <cstring>

#include "data/match.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {

Status Column::read(int64_t first, int64_t count, void* into) const {
  if (rows) {
    auto* to = static_cast<std::byte*>(into);
    for (int64_t i = 0; i < count; ++i, to += type.bytes()) PLIMSOLL_TRY(rows->read(field, first + i, to));
    return {};
  }
  if (stored_bytes() < type.bytes()) return read_padded(first, count, static_cast<std::byte*>(into));
  return read_stored(first, count, into);
}

// Reads all rows to the end of the buffer, and moves them to their places from the first on.
Status Column::read_padded(int64_t first, int64_t count, std::byte* into) const {
  const Bytes row = stored_bytes(), whole = type.bytes();
  const std::byte* const packed = into + count * (whole - row);
  PLIMSOLL_TRY(read_stored(first, count, into + count * (whole - row)));
  for (int64_t i = 0; i < count; ++i) {
    std::memmove(into + i * whole, packed + i * row, static_cast<size_t>(row));
    // The zeros never reach a row that was not moved: that begins (count - i - 1) * (whole - row) bytes later.
    std::memset(into + i * whole + row, 0, static_cast<size_t>(whole - row));
  }
  return {};
}

Status Column::read_stored(int64_t first, int64_t count, void* into) const {
  const Bytes begin = offset + first * stored_bytes(), bytes = count * stored_bytes();
  if (file) return file->pread_exact(begin, {static_cast<std::byte*>(into), static_cast<size_t>(bytes)});
  assert(memory != nullptr);
  std::memcpy(into, memory + begin, static_cast<size_t>(bytes));
  return {};
}

namespace {

FoundArray found_in_memory(const MemoryArray& array) {
  FoundArray found;
  found.label = array.label;
  found.dtype = array.dtype;
  found.dims = array.dims;
  found.memory = static_cast<const std::byte*>(array.data);
  return found;
}

}  // namespace

Result<DataSet> wrap_data(const MemoryArrays& arrays, const DataSpec& spec) {
  FoundArrays found;
  for (const PortSpec& port : spec.inputs)
    if (port.text)
      return fail(Error{
          ErrorCode::kDataShape,
          fmt::format("the model's input '{}' takes strings, and arrays in memory hold numbers", port.text->source),
          {},
          {"data in files"}});
  for (const auto& array : arrays.inputs) found.inputs.push_back(found_in_memory(array));
  if (!spec.needs_targets) return match_arrays(std::move(found), spec);
  for (const auto& array : arrays.targets) found.targets.push_back(found_in_memory(array));
  const bool shared = arrays.weights.size() == 1;
  for (size_t i = 0; i < (shared ? spec.outputs.size() : arrays.weights.size()); ++i)
    found.weights.emplace_back(found_in_memory(arrays.weights[shared ? 0 : i]));
  return match_arrays(std::move(found), spec);
}

Result<int64_t> validation_split_at(int64_t samples, double fraction, bool folder) {
  if (!(fraction > 0 && fraction < 1))
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--validation-split {}: must lie between 0 and 1", fraction),
                      {},
                      {"--validation-split 0.2"}});
  const auto part = [&](double share) {
    return static_cast<int64_t>(std::floor(static_cast<double>(samples) * share));
  };
  const int64_t at = folder ? samples - part(fraction) : part(1.0 - fraction);
  if (at > 0 && at < samples) return at;
  Error error{ErrorCode::kDataEmpty,
              fmt::format("--validation-split {} of {} samples leaves none to {}", fraction, samples,
                          at == 0 ? "train on" : "validate on"),
              {},
              {}};
  return fail(error.remedy("another fraction, more samples, or --validation-data"));
}

}  // namespace plimsoll::engine
