#include "data/column_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/checked.h"
#include "data/checks.h"

namespace plimsoll::engine {
namespace {

std::byte* at_row(void* buffer, const TensorType& type, int64_t row) {
  return static_cast<std::byte*>(buffer) + row * type.bytes();
}

// Reads weights as float32 from any dtype; converts them through a buffer on the stack.
Status read_weights(const Column& column, int64_t first, int64_t count, float* into) {
  if (!column.exists()) {
    std::fill_n(into, count, 1.0f);
    return {};
  }
  const DType dtype = column.type.dtype;
  if (dtype == DType::kFloat32) return column.read(first, count, into);
  std::array<std::byte, 4096> piece;
  const int64_t rows = static_cast<int64_t>(piece.size()) / size_of(dtype);
  for (int64_t done = 0; done < count; done += rows) {
    const int64_t now = std::min(rows, count - done);
    PLIMSOLL_TRY(column.read(first + done, now, piece.data()));
    for (int64_t i = 0; i < now; ++i) into[done + i] = static_cast<float>(element(dtype, piece.data(), i));
  }
  return {};
}

std::string by_index_note(const Error& error) {
  return fmt::format("note: {}; the records are read by index, in the same order", error.what);
}

Status check_class_weights(const DataSet& data) {
  const auto refused = [](std::string what) {
    return fail(
        Error{ErrorCode::kUsage, std::move(what), {}, {"sample weights: a third file, or sample_weight in an .npz"}});
  };
  if (data.targets.empty()) return refused("--class-weight needs data with targets");
  if (data.targets.size() > 1)
    return refused(fmt::format("--class-weight is for models with one output; this one has {}", data.targets.size()));
  const auto& target = data.targets[0];
  const Shape& shape = target.type.shape;
  // Keras would take the index of the largest label in a row as the class, which is never intended.
  if (shape.rank() > 1 || (target.role == Role::kLabels && shape.elements() > 1))
    return refused(fmt::format("--class-weight needs one class per sample; a target of {} has the shape {}",
                               target.label, to_text(shape)));
  return {};
}

bool has_weight_columns(const DataSet& data) {
  return std::any_of(data.weights.begin(), data.weights.end(), [](const Column& column) { return column.exists(); });
}

// A record as one piece: its weights as float32, then the rows of the inputs and targets.
Bytes record_bytes(const DataSet& data) {
  Bytes bytes = has_weight_columns(data) ? static_cast<Bytes>(data.weights.size() * sizeof(float)) : 0;
  for (const auto* columns : {&data.inputs, &data.targets})
    for (const Column& column : *columns) bytes += column.type.bytes();
  constexpr Bytes kAlign = 8;  // so that the weights of the next record are aligned
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

BatchBuffers parts_of(const DataSet& data, bool weights, std::byte* record) {
  BatchBuffers parts;
  for (size_t i = 0; weights && i < data.weights.size(); ++i, record += sizeof(float))
    parts.weights.push_back(reinterpret_cast<float*>(record));
  for (const Column& column : data.inputs) {
    parts.inputs.push_back(record);
    record += column.type.bytes();
  }
  for (const Column& column : data.targets) {
    parts.targets.push_back(record);
    record += column.type.bytes();
  }
  return parts;
}

}  // namespace

ColumnSource::ColumnSource(DataSet data, SourceOptions options) : data_(std::move(data)), options_(std::move(options)) {
  for (const auto& column : data_.inputs) input_types_.push_back(column.type);
  for (const auto& column : data_.targets) target_types_.push_back(column.type);
  for_each_row_source({&data_}, [&](const RowSource& source) { readers_ = std::max(readers_, source.readers()); });
}

Result<ColumnSource> ColumnSource::create(DataSet data, SourceOptions options) {
  if (options.end < 0) options.end = data.samples;
  if (options.begin < 0 || options.begin >= options.end || options.end > data.samples)
    return fail(ErrorCode::kInternal,
                fmt::format("samples {} to {} of {} were requested", options.begin, options.end, data.samples));
  if (!options.class_weights.empty()) PLIMSOLL_TRY(check_class_weights(data));
  ColumnSource source(std::move(data), std::move(options));
  const auto& plan = source.options_.plan;
  if (!plan || !plan->by_disk || !source.options_.shuffle) return source;
  auto disk = DiskShuffle::open(*plan);
  if (disk) source.disk_ = std::move(*disk);
  if (!disk && source.options_.note) source.options_.note(by_index_note(disk.error()));
  return source;
}

int64_t ColumnSource::sample_at(const SampleOrder* order, int64_t position) const {
  return options_.begin + (order ? (*order)(position) : position);
}

void for_each_row_source(std::initializer_list<const DataSet*> sets, const std::function<void(const RowSource&)>& use) {
  std::set<const RowSource*> sources;
  for (const DataSet* set : sets)
    for (const auto* columns : {&set->inputs, &set->targets, &set->weights})
      for (const Column& column : *columns)
        if (column.rows && sources.insert(column.rows.get()).second) use(*column.rows);
}

Bytes row_source_bytes(std::initializer_list<const DataSet*> sets) {
  Bytes bytes = 0;
  for_each_row_source(sets, [&](const RowSource& source) {
    bytes += source.bytes() + (source.readers() - 1) * ReaderTeam::kThreadStack;
  });
  return bytes;
}

ShufflePlan plan_shuffle(const ShuffleOptions& options, const DataSet& data, int64_t samples) {
  int reads = 0;
  ShufflePlan by_index;
  for (const auto* columns : {&data.inputs, &data.targets, &data.weights})
    for (const Column& column : *columns) {
      if (!column.exists()) continue;
      if (column.memory != nullptr) by_index.why = "the data are in memory";
      if (column.rows && column.rows->decoding(column.field)) by_index.why = "a picture is read as a whole anyway";
      ++reads;
    }
  return by_index.why.empty() ? plan_shuffle(options, samples, record_bytes(data), reads) : by_index;
}

RowTimes ColumnSource::row_times() const {
  RowTimes times;
  for_each_row_source({&data_}, [&](const RowSource& source) { times.add(source.times()); });
  return times;
}

// Reads all columns of a record before the next record, because a source keeps the record that it read last.
Status ColumnSource::read_run(int64_t sample, int64_t count, int64_t at, const BatchBuffers& into) const {
  if (data_.inputs.empty() || !data_.inputs[0].rows) return read_records(sample, count, at, into);
  for (int64_t i = 0; i < count; ++i) PLIMSOLL_TRY(read_records(sample + i, 1, at + i, into));
  return {};
}

Status ColumnSource::read_records(int64_t sample, int64_t count, int64_t at, const BatchBuffers& into) const {
  for (size_t i = 0; i < into.inputs.size(); ++i)
    if (into.inputs[i] != nullptr)  // null: the model does not depend on it
      PLIMSOLL_TRY(data_.inputs[i].read(sample, count, at_row(into.inputs[i], input_types_[i], at)));
  for (size_t i = 0; i < into.targets.size(); ++i)
    PLIMSOLL_TRY(data_.targets[i].read(sample, count, at_row(into.targets[i], target_types_[i], at)));
  for (size_t i = 0; i < into.weights.size(); ++i) {
    if (data_.weights.empty())
      std::fill_n(into.weights[i] + at, count, 1.0f);
    else
      PLIMSOLL_TRY(read_weights(data_.weights[i], sample, count, into.weights[i] + at));
  }
  return {};
}

Status ColumnSource::read_columns(const SampleOrder* order, int64_t first, int64_t count, const BatchBuffers& into) {
  if (readers_ > 1) {
    if (!team_) team_ = std::make_unique<ReaderTeam>(readers_);
    return team_->for_each(count, [&](int64_t i) { return read_records(sample_at(order, first + i), 1, i, into); });
  }
  if (!order) return read_run(sample_at(nullptr, first), count, 0, into);
  int64_t sample = sample_at(order, first);
  for (int64_t at = 0; at < count;) {
    // Samples that are still adjacent after the shuffle are read together.
    int64_t run = 1, next = 0;
    while (at + run < count && (next = sample_at(order, first + at + run)) == sample + run) ++run;
    PLIMSOLL_TRY(read_run(sample, run, at, into));
    at += run;
    sample = next;
  }
  return {};
}

Status ColumnSource::read_by_disk(const SampleOrder& order, int64_t epoch, int64_t first, int64_t count,
                                  const BatchBuffers& into) {
  const Bytes record = record_bytes(data_);
  const bool weights = has_weight_columns(data_);
  const auto read_in_order = [&](int64_t from, int64_t rows, std::byte* to) -> Status {
    for (int64_t i = 0; i < rows; ++i)
      PLIMSOLL_TRY(read_records(options_.begin + from + i, 1, 0, parts_of(data_, weights, to + i * record)));
    return {};
  };
  const auto take = [&](int64_t i, const std::byte* from) {
    const BatchBuffers parts = parts_of(data_, weights, const_cast<std::byte*>(from));
    const auto copy = [&](void* to, const void* part, Bytes bytes) {
      if (to != nullptr) std::memcpy(static_cast<std::byte*>(to) + i * bytes, part, static_cast<size_t>(bytes));
    };
    for (size_t k = 0; k < into.inputs.size(); ++k) copy(into.inputs[k], parts.inputs[k], input_types_[k].bytes());
    for (size_t k = 0; k < into.targets.size(); ++k) copy(into.targets[k], parts.targets[k], target_types_[k].bytes());
    for (size_t k = 0; k < into.weights.size(); ++k) {
      if (weights)
        copy(into.weights[k], parts.weights[k], sizeof(float));
      else
        into.weights[k][i] = 1.0F;
    }
  };
  return disk_->read(order, epoch, first, count, read_in_order, take);
}

Status ColumnSource::check(const Column& column, const void* data, const SampleOrder* order, int64_t first,
                           int64_t count) const {
  // Pixels of decoded pictures are numbers from 0 to 255.
  if (column.rows && column.rows->decoding(column.field)) return {};
  static const Shape kOneNumber;
  const bool is_weight = column.role == Role::kWeights;
  const CheckedArray array{column.label,
                           is_weight ? DType::kFloat32 : column.type.dtype,
                           is_weight ? kOneNumber : column.type.shape,
                           column.role == Role::kLabels,
                           column.classes,
                           column.ignored_class,
                           column.role == Role::kInput && column.classes > 0};
  const auto index = first_bad_element(array, data, count);
  if (!index) return {};
  return fail(bad_element(array, data, *index, sample_at(order, first + *index / array.sample.elements())));
}

Status ColumnSource::check_columns(const SampleOrder* order, int64_t first, int64_t count,
                                   const BatchBuffers& into) const {
  for (size_t i = 0; i < into.inputs.size(); ++i)
    if (into.inputs[i] != nullptr) PLIMSOLL_TRY(check(data_.inputs[i], into.inputs[i], order, first, count));
  for (size_t i = 0; i < into.targets.size(); ++i)
    PLIMSOLL_TRY(check(data_.targets[i], into.targets[i], order, first, count));
  if (data_.weights.empty()) return {};
  for (size_t i = 0; i < into.weights.size(); ++i)
    PLIMSOLL_TRY(check(data_.weights[i], into.weights[i], order, first, count));
  return {};
}

bool ColumnSource::suits(const BatchBuffers& into) const {
  const size_t outputs = data_.targets.size();
  if (into.inputs.size() != data_.inputs.size()) return false;
  if (!into.targets.empty() && into.targets.size() != outputs) return false;
  if (into.weights.empty()) return true;
  return has_weights() && into.weights.size() == outputs && (options_.class_weights.empty() || !into.targets.empty());
}

Status ColumnSource::read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) {
  if (count <= 0 || !lies_within(first, count, samples()))
    return fail(ErrorCode::kInternal,
                fmt::format("{} samples from sample {} on were requested, but there are {}", count, first, samples()));
  if (!suits(into)) return fail(ErrorCode::kInternal, "the arrays of a batch do not match the data");
  std::optional<SampleOrder> shuffled;
  if (options_.shuffle) shuffled.emplace(samples(), options_.seed, epoch);
  const SampleOrder* order = shuffled ? &*shuffled : nullptr;
  Status read;
  if (disk_ && order != nullptr) {
    read = read_by_disk(*order, epoch, first, count, into);
    if (!read) {  // the order is the same by index, so the epoch goes on
      if (read.error().code != ErrorCode::kWriteFailed) return read;
      if (options_.note) options_.note(by_index_note(read.error()));
      disk_.reset();
    }
  }
  if (!disk_ || order == nullptr) PLIMSOLL_TRY(read_columns(order, first, count, into));
  PLIMSOLL_TRY(check_columns(order, first, count, into));
  if (options_.class_weights.empty() || into.weights.empty()) return {};
  const auto& target = target_types_[0];
  options_.class_weights.apply(target.dtype, into.targets[0], target.shape.elements(), count, into.weights[0]);
  return {};
}

}  // namespace plimsoll::engine
