#include "api/pricing.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/calibration.h"
#include "formats/json/parse.h"
#include "search/compile.h"
#include "search/micro_batch.h"

namespace plimsoll::engine {

Priced priced(const SearchResult& found) {
  const Plan& plan = found.plan;
  Priced price{
      found.fits, plan.batch.effective, plan.batch.micro, plan.peak_bytes(), found.least_bytes, plan.step_seconds, {}};
  for (const LeverUse& lever : plan.levers) price.levers.push_back(lever.name);
  return price;
}

namespace {

// Names a variation. Options that no variation changes are left out.
std::string key_of(const RunOptions& o, bool find_least) {
  const auto number = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("-"); };
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", o.batch_size, number(o.micro_batch),
                     number(o.budget), number(o.host_budget), o.device, o.precision, o.per_micro_batch_norm,
                     fmt::join(o.forbidden, ","), o.data.validation_batch, o.overrides.optimizer.value_or("-"),
                     fmt::join(o.what_if.input_shape, ","), o.what_if.filters, o.what_if.largest_kernel,
                     fmt::join(o.what_if.without_layers, ","), find_least);
}

}  // namespace

RunOptions Pricing::options() const {
  RunOptions options = run_.options();
  options.automatic_batch = false;
  options.note = nullptr;
  return options;
}

Result<PlanningDevice> Pricing::device(const RunOptions& options) const {
  PlanningDevice device;
  PLIMSOLL_ASSIGN(device.own_backend, open_backend(options));
  PLIMSOLL_ASSIGN(device.own_calibrated, calibrated_device(options, device.own_backend->device()));
  device.backend = device.own_backend.get();
  device.device = device.own_calibrated ? device.own_calibrated.get() : &device.backend->device();
  return device;
}

Result<Priced> Pricing::price(const RunOptions& options, bool find_least, const Model* model,
                              const PlanningDevice* device) const {
  // What failed once fails again: the count of limit_searches() never grows.
  const std::string key = key_of(options, find_least);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  return known_.emplace(key, plan(options, find_least, model, device)).first->second;
}

Result<Priced> Pricing::plan(const RunOptions& options, bool find_least, const Model* model,
                             const PlanningDevice* device) const {
  PLIMSOLL_TRY(check_cut(options));
  const Model& planned = model != nullptr ? *model : run_.model();
  const Backend& backend = device != nullptr ? *device->backend : run_.backend();
  const Device& seconds_from = device != nullptr ? *device->device : run_.planned_device();
  PLIMSOLL_TRY(planned.check_batch(options.batch_size * options.accumulation_steps));
  DataOutline data = run_.data().outline;
  if (model != nullptr && options.data.data.empty())
    data.types = assumed_data_types(planned, data.types.sample_weights);
  PLIMSOLL_ASSIGN(SearchRequest request,
                  make_request(options, planned, backend, data, choose_budget(options, seconds_from.info())));
  request.device = &seconds_from;
  request.find_least = find_least;
  request.only_price = true;
  if (searches_left_ && request.budget > 0) {
    PLIMSOLL_ASSIGN(const auto plain, compile(request, cut_into(request, request.piece())));
    if (!plain || plain->peak_bytes() > request.budget) {
      if (*searches_left_ == 0) return fail(ErrorCode::kDoesNotFit, "a plan without levers does not fit");
      --*searches_left_;
    }
  }
  PLIMSOLL_ASSIGN(const SearchResult found, search(request));
  return priced(found);
}

Result<Model> Pricing::changed_model(const RunOptions& options) const {
  PLIMSOLL_ASSIGN(Description description, description_of(run_.opened()));
  PLIMSOLL_ASSIGN(description, change(std::move(description), options.what_if));
  return Model::create(description, options.overrides);
}

Result<Priced> Pricing::price_elsewhere(const RunOptions& options, bool find_least) const {
  if (const auto known = known_.find(key_of(options, find_least)); known != known_.end()) return known->second;
  PLIMSOLL_ASSIGN(const PlanningDevice device, this->device(options));
  PLIMSOLL_ASSIGN(const Model model, changed_model(options));
  return price(options, find_least, &model, &device);
}

Result<int64_t> Pricing::largest_batch_that_fits(RunOptions options, int64_t limit, const Model* model,
                                                 const PlanningDevice* device) const {
  // The memory of the smallest plan grows with the batch, so the powers of two can be bisected.
  int exponents = 0;
  while ((int64_t{2} << exponents) <= limit && exponents < 40) ++exponents;
  int low = -1, high = exponents + 1;  // `low` fits, `high` does not
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    options.batch_size = int64_t{1} << middle;
    if (options.micro_batch) options.micro_batch = std::min(*options.micro_batch, options.batch_size);
    const auto found = price(options, false, model, device);
    (found && found->fits ? low : high) = middle;
  }
  return low < 0 ? 0 : int64_t{1} << low;
}

}  // namespace plimsoll::engine
