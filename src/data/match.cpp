#include "data/match.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/file/array_source.h"

namespace plimsoll::engine {
namespace {

bool differs_by_trailing_one(const std::vector<int64_t>& longer, const std::vector<int64_t>& shorter) {
  return longer.size() == shorter.size() + 1 && longer.back() == 1 &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

bool fits(const std::vector<int64_t>& sample, const Shape& wanted) {
  return sample == wanted.dims || differs_by_trailing_one(sample, wanted.dims) ||
         differs_by_trailing_one(wanted.dims, sample);
}

// Returns text such as "(28, 28, 1)"; "one number" for the shape that NumPy prints as "()".
std::string sample_text(const std::vector<int64_t>& dims) {
  return dims.empty() ? "one number" : dims_text(dims);
}

// A permutation of an array's axes, starting with the samples, that puts a sample's dimensions in the wanted order: {0,
// 2, 3, 1} for channels-first images. Empty if the dimensions differ. `unique`: no other permutation would fit.
struct Axes {
  std::vector<size_t> order;
  bool unique = true;
};
std::optional<Axes> transposition(const std::vector<int64_t>& sample, const std::vector<int64_t>& wanted) {
  if (sample.size() != wanted.size() || !std::is_permutation(sample.begin(), sample.end(), wanted.begin()))
    return std::nullopt;
  Axes axes{{0}, true};
  std::vector<bool> taken(sample.size(), false);
  for (const int64_t d : wanted) {
    size_t found = sample.size();
    for (size_t i = 0; i < sample.size(); ++i) {
      if (taken[i] || sample[i] != d) continue;
      if (found == sample.size())
        found = i;
      else
        axes.unique = false;
    }
    taken[found] = true;
    axes.order.push_back(found + 1);
  }
  return axes;
}

std::vector<int64_t> without_ones(std::vector<int64_t> dims) {
  std::erase(dims, 1);
  return dims;
}

// Returns whether a reshape keeps the meaning of every element: only dimensions of 1 are added or removed, or one side
// is flat. Any other reshape of the right size might cut images into pieces and train on them without an error.
bool safe_reshape(const std::vector<int64_t>& sample, const std::vector<int64_t>& wanted) {
  const auto a = without_ones(sample), b = without_ones(wanted);
  return a == b || a.size() == 1 || b.size() == 1;
}

void add_shape_remedy(Error& error, const FoundArray& array, const std::vector<int64_t>& sample, const Shape& wanted) {
  if (const auto axes = transposition(sample, wanted.dims)) {
    error.remedy(fmt::format("np.transpose(x, ({})){}", fmt::join(axes->order, ", "),
                             axes->unique ? "" : "   some sizes are equal: check which axis is which"));
    return;
  }
  int64_t elements = 1;
  for (const int64_t d : sample)
    if (__builtin_mul_overflow(elements, d, &elements)) return;
  if (elements != wanted.elements() || !safe_reshape(sample, wanted.dims)) return;
  auto dims = wanted.dims;
  dims.insert(dims.begin(), array.dims[0]);
  error.remedy(fmt::format("np.reshape(x, {})   keeps the order of the elements", dims_text(dims)));
}

Error shape_error(const FoundArray& array, const std::string& port, const Shape& wanted) {
  const std::vector<int64_t> sample(array.dims.empty() ? array.dims.end() : array.dims.begin() + 1, array.dims.end());
  Error error{ErrorCode::kDataShape,
              array.dims.empty() ? fmt::format("{}: a single number, not an array of samples", array.label)
                                 : fmt::format("{}: a sample is {}, {} takes {}", array.label, sample_text(sample),
                                               port, sample_text(wanted.dims)),
              {},
              {}};
  error.fact(fmt::format("{} has the shape {} of {}", array.label, dims_text(array.dims), keras_name(array.dtype)));
  if (!array.dims.empty()) add_shape_remedy(error, array, sample, wanted);
  return error;
}

bool sample_is_one_number(const FoundArray& array) {
  return array.dims.size() == 1 || (array.dims.size() == 2 && array.dims[1] == 1);
}

// Returns text such as {"N", "28", "28", "1"}.
std::vector<std::string> prefixed(const std::string& first, const std::vector<int64_t>& dims) {
  std::vector<std::string> words{first};
  for (const int64_t d : dims) words.push_back(fmt::format("{}", d));
  return words;
}

// Returns the number of labels of a sample if the array has fewer than wanted; else 0.
int64_t fewer_labels(const FoundArray& array, const Shape& wanted) {
  if (array.dims.size() != 2 || wanted.rank() != 1 || array.rows) return 0;
  return array.dims[1] >= 1 && array.dims[1] < wanted[0] ? array.dims[1] : 0;
}

Error holds_strings(const FoundArray& array, const std::string& port) {
  Error error{ErrorCode::kDataShape, fmt::format("{}: it holds strings, {} takes numbers", array.label, port), {}, {}};
  return error.remedy("a model that begins with TextVectorization, StringLookup or Hashing takes strings");
}

Result<Column> column(FoundArray array, Role role, const std::string& port, const Shape& wanted, int64_t classes = 0,
                      bool padded = false) {
  if (array.strings) return fail(holds_strings(array, port));
  const int64_t stored = padded ? fewer_labels(array, wanted) : 0;
  if (stored > 0) array.dims[1] = wanted[0];
  if (array.dims.empty() || !fits({array.dims.begin() + 1, array.dims.end()}, wanted)) {
    Error error = shape_error(array, port, wanted);
    if (role == Role::kLabels && array.dims.size() == wanted.rank() + 2 && array.dims.back() == classes)
      error.remedy("the targets look one-hot: --loss categorical_crossentropy");
    if (role == Role::kTarget && sample_is_one_number(array) && wanted.rank() == 1)
      error.remedy("the targets look like labels: --loss sparse_categorical_crossentropy");
    if (error.remedies.empty())
      error.remedy(
          fmt::format("an array of shape ({}), with the samples first", fmt::join(prefixed("N", wanted.dims), ", ")));
    return fail(std::move(error));
  }
  Column result;
  result.label = std::move(array.label);
  result.role = role;
  result.type = {array.dtype, wanted};
  result.classes = classes;
  result.file = std::move(array.file);
  result.memory = array.memory;
  result.offset = array.offset;
  result.stored = stored;
  result.rows = std::move(array.rows);
  result.field = array.field;
  return result;
}

// Checks that every array has as many rows as the first.
class Lengths {
 public:
  Status add(const FoundArray& array) {
    if (array.dims.empty()) return {};  // reported as a shape error
    if (array.dims[0] == 0)
      return fail(Error{ErrorCode::kDataEmpty,
                        fmt::format("{} holds no samples: its shape is {}", array.label, dims_text(array.dims)),
                        {},
                        {"check how the file was written: np.load(file).shape"}});
    if (samples_ == 0) {
      samples_ = array.dims[0];
      label_ = array.label;
    }
    if (array.dims[0] == samples_) return {};
    Error error{ErrorCode::kDataLengths,
                fmt::format("{} holds {} samples, {} holds {}", label_, samples_, array.label, array.dims[0]),
                {},
                {}};
    return fail(error.remedy("arrays of one data set need one row per sample, in the same order"));
  }
  int64_t samples() const { return samples_; }

 private:
  int64_t samples_ = 0;
  std::string label_;
};

Status check_count(size_t found, size_t wanted, const char* what) {
  if (found == wanted) return {};
  return fail(Error{ErrorCode::kDataShape,
                    fmt::format("wrong number of arrays for the model's {}: expected {}, got {}", what, wanted, found),
                    {},
                    {"provide one array for each of them"}});
}

Status check_lengths(const FoundArrays& found, DataSet& set) {
  Lengths lengths;
  for (const auto& array : found.inputs) PLIMSOLL_TRY(lengths.add(array));
  for (const auto& array : found.targets) PLIMSOLL_TRY(lengths.add(array));
  for (const auto& array : found.weights)
    if (array) PLIMSOLL_TRY(lengths.add(*array));
  set.samples = lengths.samples();
  return {};
}

}  // namespace

Status tell_left_out(const ReadOptions& read, const std::string& path, int64_t records, const char* what) {
  if (records == 0) return {};
  if (records > read.most_bad_records)
    return fail(
        Error{ErrorCode::kBadDataFile,
              fmt::format("{}: {} damaged {}, and --max-bad-records is {}", path, records, what, read.most_bad_records),
              {},
              {"--on-bad-record stop   names the first of them"}});
  if (read.note) read.note(fmt::format("{}: {} damaged {} are left out", path, records, what));
  return {};
}

Result<DataSet> match_arrays(FoundArrays found, const DataSpec& spec) {
  PLIMSOLL_TRY(check_count(found.inputs.size(), spec.inputs.size(), "inputs"));
  if (spec.needs_targets) PLIMSOLL_TRY(check_count(found.targets.size(), spec.outputs.size(), "outputs"));
  if (!found.weights.empty()) PLIMSOLL_TRY(check_count(found.weights.size(), spec.outputs.size(), "sample weights"));
  DataSet set;
  set.folder = found.folder;
  PLIMSOLL_TRY(check_lengths(found, set));
  for (size_t i = 0; i < found.inputs.size(); ++i) {
    const auto& port = spec.inputs[i];
    PLIMSOLL_ASSIGN(auto input, column(std::move(found.inputs[i]), Role::kInput,
                                       fmt::format("the model's input '{}'", port.name), port.sample, port.classes));
    set.inputs.push_back(std::move(input));
  }
  for (size_t i = 0; i < found.targets.size(); ++i) {
    const auto& port = spec.outputs[i];
    const Role role = port.sparse_labels ? Role::kLabels : Role::kTarget;
    PLIMSOLL_ASSIGN(auto target, column(std::move(found.targets[i]), role,
                                        fmt::format("the model's output '{}' as target", port.name), port.target,
                                        port.classes, port.padded_labels));
    target.ignored_class = port.ignored_class;
    set.targets.push_back(std::move(target));
  }
  for (size_t i = 0; i < found.weights.size(); ++i) {
    Column weight;
    weight.role = Role::kWeights;
    if (found.weights[i]) {
      PLIMSOLL_ASSIGN(weight, column(std::move(*found.weights[i]), Role::kWeights,
                                     fmt::format("a sample weight of output '{}'", spec.outputs[i].name), Shape{}));
    }
    set.weights.push_back(std::move(weight));
  }
  return set;
}

}  // namespace plimsoll::engine
