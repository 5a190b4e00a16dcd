// --device all: one plan per card.
#include "api/advice.h"
#include "backends/cuda/cuda.h"

namespace plimsoll::engine {

Result<std::vector<CardPrice>> price_cards(Run& run) {
  constexpr int64_t kLargestBatch = 4096;
  const Pricing pricing(run);
  std::vector<CardPrice> list;
  for (const cuda::Card& card : cuda::card_profiles()) {
    RunOptions options = pricing.options();
    options.device = card.profile;
    if (options.precision == "mixed_bfloat16" && !card.has_bfloat16()) {
      options.precision = "mixed_float16";
      options.overrides.scale_loss = true;
    }
    const auto device = pricing.device(options);
    if (!device) return fail(device.error());
    PLIMSOLL_ASSIGN(const Model model, pricing.changed_model(options));
    PLIMSOLL_ASSIGN(const Priced price, pricing.price(options, false, &model, &*device));
    PLIMSOLL_ASSIGN(const int64_t largest, pricing.largest_batch_that_fits(options, kLargestBatch, &model, &*device));
    list.push_back({card.profile, card.name, card.memory_bytes, card.measured, price.fits, price.peak_bytes,
                    price.step_seconds, largest});
  }
  return list;
}

}  // namespace plimsoll::engine
