#include "data/text_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "formats/file/array_source.h"

namespace plimsoll::engine {
namespace {

class TextRows final : public RowSource {
 public:
  void add(const FoundArray& strings, const TextInput& text, int64_t per_sample, int64_t elements) {
    const Bytes longest = strings.strings->longest();
    text_.reserve(static_cast<size_t>(longest));
    fields_.push_back({strings, text.text, per_sample, elements, std::make_unique<TextWriter>(*text.text, longest)});
  }

  Bytes bytes() const override {
    std::set<const void*> counted;
    auto bytes = static_cast<Bytes>(text_.capacity());
    for (const Field& field : fields_) {
      bytes += field.writer->bytes();
      if (counted.insert(field.layer.get()).second) bytes += field.layer->bytes();
      if (counted.insert(field.strings.strings.get()).second) bytes += field.strings.strings->bytes();
    }
    return bytes;
  }

  Status read(size_t number, int64_t record, void* into) override {
    PLIMSOLL_TRY(write(number, record, into));
    return {};
  }

  // Writes a row, or only counts its tokens if `into` is null.
  Result<int64_t> write(size_t number, int64_t record, void* into) {
    const std::lock_guard lock(mutex_);
    Field& field = fields_[number];
    field.writer->begin(into, field.elements);
    for (int64_t i = 0; i < field.per_sample; ++i) {
      PLIMSOLL_TRY(field.strings.strings->read(field.strings.field, record, i, text_));
      if (auto status = field.writer->add(text_); !status) {
        Error error = std::move(status).error();
        error.what = fmt::format("{}: sample {}: {}", field.strings.label, record, error.what);
        return fail(std::move(error));
      }
    }
    return field.writer->end();
  }

  Result<std::string> digest(size_t number) override {
    const Field& field = fields_[number];
    PLIMSOLL_ASSIGN(const std::string strings, field.strings.strings->digest(field.strings.field));
    return fmt::format("{} {}", strings, field.layer->digest());
  }

 private:
  struct Field {
    FoundArray strings;
    std::shared_ptr<const TextLayer> layer;
    int64_t per_sample = 1, elements = 0;
    std::unique_ptr<TextWriter> writer;
  };

  std::mutex mutex_;  // of the members below
  std::string text_;
  std::vector<Field> fields_;
};

bool agrees(const OpenDims& declared, std::vector<int64_t> sample) {
  if (sample.size() == declared.size() + 1 && sample.back() == 1) sample.pop_back();
  if (sample.size() + 1 == declared.size() && declared.back() == 1) sample.push_back(1);
  if (sample.size() != declared.size()) return false;
  for (size_t i = 0; i < sample.size(); ++i)
    if (declared[i] && *declared[i] != sample[i]) return false;
  return true;
}

std::string shown(const OpenDims& dims) {
  std::vector<std::string> words;
  for (const auto& d : dims) words.push_back(d ? fmt::format("{}", *d) : "None");
  return fmt::format("[{}]", fmt::join(words, ", "));
}

// Checks the strings, and returns how many a sample has.
Result<int64_t> strings_per_sample(const FoundArray& found, const TextInput& text) {
  if (!found.strings)
    return fail(Error{ErrorCode::kDataShape,
                      fmt::format("{}: it holds {}, but the model's input '{}' takes strings", found.label,
                                  keras_name(found.dtype), text.source),
                      {},
                      {"np.save(file, np.array(texts, dtype=str))"}});
  if (found.dims.empty())
    return fail(ErrorCode::kDataShape, fmt::format("{}: a single string, not an array of samples", found.label));
  const std::vector<int64_t> sample(found.dims.begin() + 1, found.dims.end());
  if (!agrees(text.strings, sample))
    return fail(ErrorCode::kDataShape,
                fmt::format("{}: a sample has the shape {}, but the model's input '{}' takes strings of the shape {}",
                            found.label, dims_text(sample), text.source, shown(text.strings)));
  int64_t count = 1;
  for (const int64_t d : sample) count *= d;
  return count;
}

FoundArray array_of_numbers(const FoundArray& strings, const PortSpec& port, std::shared_ptr<RowSource> rows,
                            size_t field) {
  FoundArray made;
  made.label = strings.label;
  made.dtype = port.text->text->dtype();
  made.dims = {strings.dims[0]};
  made.dims.insert(made.dims.end(), port.sample.dims.begin(), port.sample.dims.end());
  made.rows = std::move(rows);
  made.field = field;
  return made;
}

}  // namespace

std::vector<PortSpec> ports_of_data(const std::vector<PortSpec>& ports) {
  std::vector<PortSpec> made;
  std::set<std::string> sources;
  for (const PortSpec& port : ports) {
    if (!port.text) {
      made.push_back(port);
      continue;
    }
    if (!sources.insert(port.text->source).second) continue;
    made.push_back({port.text->source, {}, false, 0, {}});
    made.back().text = port.text;
  }
  return made;
}

Result<std::vector<FoundArray>> numbers_of_strings(std::vector<FoundArray> found, const std::vector<PortSpec>& ports) {
  const std::vector<PortSpec> of_data = ports_of_data(ports);
  const auto rows = std::make_shared<TextRows>();
  std::vector<FoundArray> made;
  size_t fields = 0;
  for (const PortSpec& port : ports) {
    const std::string& name = port.text ? port.text->source : port.name;
    const auto at = std::find_if(of_data.begin(), of_data.end(), [&](const PortSpec& one) { return one.name == name; });
    const FoundArray& array = found[static_cast<size_t>(at - of_data.begin())];
    if (!port.text) {
      made.push_back(array);
      continue;
    }
    PLIMSOLL_ASSIGN(const int64_t per_sample, strings_per_sample(array, *port.text));
    rows->add(array, *port.text, per_sample, port.sample.elements());
    made.push_back(array_of_numbers(array, port, rows, fields++));
  }
  return made;
}

Result<std::vector<int64_t>> shape_of_numbers(FoundArray strings, const PortSpec& port) {
  PLIMSOLL_ASSIGN(const int64_t per_sample, strings_per_sample(strings, *port.text));
  if (!port.text->text->splits()) return std::vector<int64_t>(strings.dims.begin() + 1, strings.dims.end());
  TextRows rows;
  rows.add(strings, *port.text, per_sample, 0);
  int64_t longest = 1;
  for (int64_t i = 0; i < strings.dims[0]; ++i) {
    PLIMSOLL_ASSIGN(const int64_t tokens, rows.write(0, i, nullptr));
    longest = std::max(longest, tokens);
  }
  return std::vector<int64_t>{longest};
}

}  // namespace plimsoll::engine
