#include <fmt/format.h>

#include <algorithm>

#include "cli/within_budget.h"

namespace plimsoll {
namespace {

// One trailing dimension of 1 may be missing or too many.
bool same_sample(std::vector<int64_t> a, std::vector<int64_t> b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() == a.size() + 1 && b.back() == 1) b.pop_back();
  return a == b;
}

// The data may say otherwise than --input-shape. Data that cannot be read are an error where they are opened.
Status check_input_shape(const CommonFlags& flags, const Model& model) {
  if (flags.input_shape.empty() || !flags.job.overrides.data_shape || model.inputs().size() != 1) return {};
  const Port& input = model.inputs()[0];
  const auto sample = flags.job.overrides.data_shape(input.name, true);
  if (!sample || same_sample(*sample, input.sample.dims)) return {};
  // The same sizes in another order: the data are wrong, and opening them says how to transpose them.
  const auto& dims = input.sample.dims;
  if (std::is_permutation(sample->begin(), sample->end(), dims.begin(), dims.end())) return {};
  return fail(
      Error{ErrorCode::kDataShape,
            fmt::format("--input-shape {}, but a sample of the data is {}", flags.input_shape, fmt::join(*sample, ",")),
            {},
            {"leave --input-shape out: the data say it", "data of that shape"}});
}

}  // namespace

Result<OpenModel> open_model_for(CommonFlags& flags, const std::string& data, Split split) {
  if (!data.empty())
    flags.job.overrides.data_shape = [data, split](const std::string& input, bool only) {
      return sample_shape(data, input, only, split);
    };
  PLIMSOLL_ASSIGN(OpenModel open,
                  within_budget(flags.job, reading_budget(flags.job), [&] { return open_model(flags.job); }));
  PLIMSOLL_TRY(check_input_shape(flags, open.model));
  for (const std::string& note : open.notes) message(flags, note);
  return open;
}

std::string skipped_text(const Model& model, const std::string& metric) {
  const std::string name = metric.starts_with("val_") ? metric.substr(4) : metric;
  const auto& skipped = model.skipped_metrics();
  if (std::find(skipped.begin(), skipped.end(), name) == skipped.end()) return "";
  return fmt::format("'{}' is asked for, but Plimsoll does not compute it", name);
}

}  // namespace plimsoll
