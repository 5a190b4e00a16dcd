#include "cli/data_flags.h"

#include <fmt/format.h>

namespace plimsoll::engine {

CLI::Option* add_data_flags(CLI::App& command, DataOptions& options, const std::string& data_text) {
  command.add_option("--validation-data", options.validation_data,
                     "data to validate on after each epoch, in the form of --data");
  command.add_option("--validation-split", options.validation_split,
                     "fraction of --data, taken from its end, to validate on");
  command
      .add_option("--validation-batch-size", options.validation_batch,
                  "batch size for validation (default: --batch-size)")
      ->check(whole_above_zero());
  command.add_option("--class-weight", options.class_weight, "weight of each class in the loss: 0:1,1:5");
  return command.add_option("--data", options.data, data_text);
}

Status check_data_flags(const DataOptions& options) {
  if (options.validation_split >= 0 && options.validation_split < 1) return {};
  return fail(Error{
      ErrorCode::kUsage,
      fmt::format("--validation-split takes a fraction of at least 0 and below 1, got {}", options.validation_split),
      {},
      {"--validation-split 0.2"}});
}

}  // namespace plimsoll::engine
