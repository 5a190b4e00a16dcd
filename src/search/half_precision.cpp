#include "search/half_precision.h"

#include "search/remedies.h"

namespace plimsoll::engine {

// Half precision, if the device supports it: bfloat16, or float16 with a loss scale.
std::optional<Remedy> precision_remedy(const SearchRequest& request, const SearchResult& result) {
  const DeviceInfo& device = request.device->info();
  if (device.kind == "reference" || request.graph.precision != Precision()) return std::nullopt;
  Freed half(request);
  half.request.graph.precision.compute = device.has_bfloat16 ? DType::kBFloat16 : DType::kFloat16;
  const Model scaled = request.model->with_loss_scale();
  if (!device.has_bfloat16) half.request.model = &scaled;
  const std::string flags = "--precision " + to_text(half.request.graph.precision);
  auto remedy = remedy_of(std::move(half), flags, result);
  if (!remedy) return std::nullopt;
  remedy->what = "half precision";
  remedy->changes = request.batch > 0 ? "training" : "the results";
  return remedy;
}

}  // namespace plimsoll::engine
