#include "search/half_precision.h"

#include <fmt/format.h>

#include "search/remedies.h"

namespace plimsoll::engine {

// Adds a remedy with half precision if the device supports it (bfloat16, or float16 with a loss scale): the fastest
// such plan that fits, or the smallest one.
void add_precision_remedy(const SearchRequest& request, const SearchResult& result, Error& error) {
  const DeviceInfo& device = request.device->info();
  if (device.kind != "gpu" || request.graph.precision != Precision()) return;
  Freed half(request);
  half.request.graph.precision.compute = device.has_bfloat16 ? DType::kBFloat16 : DType::kFloat16;
  const Model scaled = request.model->with_loss_scale();
  if (!device.has_bfloat16) half.request.model = &scaled;
  const auto other = search(half.request);
  if (!other || other->plan.peak_bytes() >= result.plan.peak_bytes()) return;
  const std::string training = request.batch > 0
                                   ? fmt::format("{:.2f}x the time of the smallest plan, changes training",
                                                 other->plan.step_seconds / result.plan.step_seconds)
                                   : "changes the results";
  if (const auto text = remedy_words(half, "--precision " + to_text(half.request.graph.precision), *other, result))
    error.remedy(
        fmt::format("{}   half precision: needs {}, {}", *text, format_bytes(other->plan.peak_bytes()), training));
}

}  // namespace plimsoll::engine
