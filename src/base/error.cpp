#include "base/error.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace plimsoll {

using engine::printable;

std::string code_name(ErrorCode code) {
  return fmt::format("P{}", static_cast<int>(code));
}

int exit_code(ErrorCode code) {
  return static_cast<int>(code) / 100;
}

std::string to_text(const Error& error) {
  std::string text = fmt::format("error {}: {}\n", code_name(error.code), printable(error.what));
  for (const auto& fact : error.facts) text += fmt::format("  {}\n", printable(fact));
  for (size_t i = 0; i < error.remedies.size(); ++i)
    text += fmt::format("  {}{}\n", i == 0 ? "try: " : "     ", printable(error.remedies[i]));
  return text;
}

const std::vector<ErrorCode>& all_error_codes() {
  using enum ErrorCode;
  static const std::vector<ErrorCode> codes = {kInternal,
                                               kUsage,
                                               kFileUnreadable,
                                               kNotAKerasFile,
                                               kBadConfig,
                                               kUnsupported,
                                               kWeightMissing,
                                               kWeightShape,
                                               kNotCompiled,
                                               kUnknownInputShape,
                                               kBadGeometry,
                                               kBadPlan,
                                               kBadCheckpoint,
                                               kBadWeightsFile,
                                               kCheckpointInUse,
                                               kDoesNotFit,
                                               kBatchNormForbidsMicroBatch,
                                               kOverheadAboveBound,
                                               kPeakAboveBudget,
                                               kBadDataFile,
                                               kDataShape,
                                               kDataNotFinite,
                                               kLabelOutOfRange,
                                               kDataEmpty,
                                               kDataLengths,
                                               kInterrupted,
                                               kWriteFailed,
                                               kNotWritable,
                                               kLibraryMissing,
                                               kOutOfMemory,
                                               kDeviceLost,
                                               kNotSaved};
  return codes;
}

}  // namespace plimsoll
