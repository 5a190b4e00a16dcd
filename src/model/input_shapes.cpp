// The shapes of a model's inputs: declared by the model, given by the user, or taken from the data.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/architecture.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {

std::string shown_dims(const InputSpec& spec) {
  std::vector<std::string> words;
  for (const auto& d : spec.dims) words.push_back(d ? fmt::format("{}", *d) : "None");
  return fmt::format("{}", fmt::join(words, ","));
}

bool agrees(const InputSpec& spec, const std::vector<int64_t>& given) {
  if (!spec.known) return true;
  bool same = given.size() == spec.dims.size();
  for (size_t i = 0; same && i < given.size(); ++i) same = !spec.dims[i] || *spec.dims[i] == given[i];
  return same;
}

namespace {

// Fits the shape of a data sample to the input: one trailing dimension of 1 may be missing or additional.
std::vector<int64_t> fitted(std::vector<int64_t> sample, const InputSpec& spec) {
  if (!spec.known) return sample;
  if (sample.size() + 1 == spec.dims.size() && spec.dims.back().value_or(1) == 1) sample.push_back(1);
  if (sample.size() == spec.dims.size() + 1 && sample.back() == 1) sample.pop_back();
  return sample;
}

// Returns "np.transpose(x, (0, 2, 3, 1))" if channels-first images would fit after moving their first dimension to the
// end; else "".
std::string channels_first_remedy(const InputSpec& spec, std::vector<int64_t> sample) {
  if (sample.size() < 2) return "";
  std::rotate(sample.begin(), sample.begin() + 1, sample.end());
  if (!agrees(spec, sample)) return "";
  std::vector<size_t> axes{0};
  for (size_t i = 2; i <= sample.size(); ++i) axes.push_back(i);
  return fmt::format("np.transpose(x, ({}, 1))", fmt::join(axes, ", "));
}

// Returns the shape of one sample: the declared shape, in which None is replaced by `given` (--input-shape or the
// data's shape).
Result<Shape> input_shape(const InputSpec& spec, const std::vector<int64_t>& given, bool from_data) {
  bool complete = spec.known;
  for (const auto& d : spec.dims) complete = complete && d;
  const std::string where = fmt::format("input '{}'", spec.name);
  const std::string declared = spec.known ? fmt::format("[{}]", shown_dims(spec)) : "no shape";
  if (given.empty() && !complete) {
    Error error{ErrorCode::kUnknownInputShape,
                fmt::format("{} is declared with {}, so its size must be given", where, declared),
                {},
                {}};
    error.remedy("--input-shape 224,224,3   the shape of one sample, without the batch");
    error.remedy("--data FILES   takes the shape from the data");
    return fail(std::move(error));
  }
  const bool fits = given.empty() || agrees(spec, given);
  if (!fits && from_data) {
    const std::string remedy = channels_first_remedy(spec, given);
    return fail(
        Error{ErrorCode::kDataShape,
              fmt::format("a sample of the data is ({}), but {} is declared with {}", fmt::join(given, ", "), where,
                          declared),
              {},
              {remedy.empty() ? "use data whose samples have the declared sizes, and any size for None" : remedy}});
  }
  if (!fits)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--input-shape {} does not match {}, which is declared with {}",
                                  fmt::join(given, ","), where, declared),
                      {},
                      {"--input-shape with the declared sizes, and any size for None"}});
  if (!given.empty()) return checked_shape(given, where);
  std::vector<int64_t> dims;
  for (const auto& d : spec.dims) dims.push_back(*d);
  return checked_shape(std::move(dims), where);
}

// If only one of several inputs needs --input-shape, it must not be compared with the others.
bool wants_shape(const InputSpec& spec) {
  for (const auto& d : spec.dims)
    if (!d) return true;
  return !spec.known;
}

}  // namespace

Result<std::vector<Shape>> input_shapes(const Architecture& architecture, const ModelOptions& options) {
  const std::vector<InputSpec>& inputs = architecture.inputs();
  const bool any_wants = std::any_of(inputs.begin(), inputs.end(), wants_shape);
  std::set<std::string> names;  // of what the data hold: one input of strings may become several of numbers
  for (const InputSpec& spec : inputs) names.insert(spec.text ? spec.text->source : spec.name);
  const size_t sources = names.size();
  std::vector<Shape> shapes;
  for (const InputSpec& spec : inputs) {
    std::vector<int64_t> given;
    if (wants_shape(spec) || !any_wants) given = options.input_shape;
    const bool from_data = given.empty() && wants_shape(spec) && options.data_shape;
    if (from_data) {
      PLIMSOLL_ASSIGN(std::vector<int64_t> sample, options.data_shape(spec, sources == 1));
      given = fitted(std::move(sample), spec);
    }
    PLIMSOLL_ASSIGN(Shape shape, input_shape(spec, given, from_data));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace plimsoll::engine
