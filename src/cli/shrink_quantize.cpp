// plimsoll shrink quantize: writes a `.tflite` file.
#include <fmt/format.h>

#include "api/quantize.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/budget_kept.h"
#include "cli/data_flags.h"
#include "cli/shrink.h"
#include "cli/signals.h"
#include "report/text_table.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kStopping = "interrupted: stopping after this sample; a second Ctrl-C ends at once";
constexpr size_t kShownLayers = 12;

struct QuantizeFlags : CommonFlags {
  QuantizeOptions quantize;
  std::string to = "tflite", method = "percentile", inputs = "float32", outputs = "float32";
  bool float32 = false, float16 = false, dynamic = false, int8 = false, no_bias_correction = false, all_layers = false;
};

Result<lite::Type> type_of(const std::string& text, const char* flag, const QuantizeFlags& flags) {
  if (text != "float32" && flags.quantize.format != LiteFormat::kInt8)
    return fail(Error{ErrorCode::kUsage, fmt::format("{} {} needs --int8", flag, text), {}, {"--int8"}});
  return text == "float32" ? lite::Type::kFloat32 : text == "int8" ? lite::Type::kInt8 : lite::Type::kUInt8;
}

Status read_flags(QuantizeFlags& flags) {
  QuantizeOptions& o = flags.quantize;
  PLIMSOLL_TRY(check_ending(o.output, ".tflite", "-o"));
  if (int{flags.float32} + int{flags.float16} + int{flags.dynamic} + int{flags.int8} > 1)
    return fail(ErrorCode::kUsage, "only one of --float32, --float16, --dynamic and --int8 can be chosen");
  o.format = flags.int8      ? LiteFormat::kInt8
             : flags.dynamic ? LiteFormat::kDynamic
             : flags.float16 ? LiteFormat::kFloat16
                             : LiteFormat::kFloat32;
  if (!o.keep_float.empty() && o.format != LiteFormat::kInt8 && o.format != LiteFormat::kDynamic)
    return fail(ErrorCode::kUsage, "--keep-float needs --int8 or --dynamic");
  PLIMSOLL_ASSIGN(o.int8.inputs, type_of(flags.inputs, "--inputs", flags));
  PLIMSOLL_ASSIGN(o.int8.outputs, type_of(flags.outputs, "--outputs", flags));
  o.int8.method = flags.method == "minmax" ? lite::RangeMethod::kMinMax
                  : flags.method == "mse"  ? lite::RangeMethod::kMse
                  : flags.method == "kl"   ? lite::RangeMethod::kKl
                                           : lite::RangeMethod::kPercentile;
  o.int8.corrects_bias = !flags.no_bias_correction;
  PLIMSOLL_TRY(flags.resolve(Mode::kPredict));
  o.run = flags.options;
  return {};
}

nlohmann::ordered_json json_of(const QuantizeReport& r) {
  nlohmann::ordered_json json = ordered_object({{"output", r.output},
                                                {"format", r.format},
                                                {"file_bytes", r.file_bytes},
                                                {"float32_bytes", r.float32_bytes},
                                                {"operators", r.operators},
                                                {"calibrated_samples", r.calibrated},
                                                {"compared_samples", r.compared}});
  if (r.compared > 0) json["output_mean_squared_error"] = r.output_mean_square;
  if (r.agreement) json["same_class"] = *r.agreement;
  if (r.accuracy) {
    json["float32_accuracy"] = *r.float32_accuracy;
    json["accuracy"] = *r.accuracy;
  }
  if (r.equalized > 0) json["equalized_pairs"] = r.equalized;
  json["kept_float"] = r.kept;
  json["left_float"] = r.left_float;
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerError& e : r.layers)
    layers.push_back(ordered_object({{"layer", e.layer},
                                     {"mean_squared_error", e.mean_square},
                                     {"signal_to_noise_db", e.ratio},
                                     {"bytes", e.bytes},
                                     {"float32_bytes", e.float_bytes}}));
  json["layers"] = layers;
  json["peak_bytes"] = r.peak_bytes;
  return json;
}

std::string layer_table(const QuantizeReport& r, bool all) {
  TextTable table;
  table.row({"layer", "MSE", "signal/noise", "bytes", "float32 costs"});
  size_t shown = 0;
  for (const LayerError& e : r.layers) {
    if (!all && ++shown > kShownLayers) break;
    table.row({e.layer.empty() ? "(inputs)" : e.layer, fmt::format("{:.3g}", e.mean_square),
               fmt::format("{:.1f} dB", e.ratio), with_commas(e.bytes),
               e.float_bytes > e.bytes ? "+" + with_commas(e.float_bytes - e.bytes) : "0"});
  }
  std::string text = table.text();
  if (!all && r.layers.size() > kShownLayers)
    text += fmt::format("and {} layers with smaller errors (--all-layers)\n", r.layers.size() - kShownLayers);
  return text;
}

std::string text_of(const QuantizeReport& r, bool all) {
  std::string text = fmt::format("{}: {}, {} bytes", r.output, r.format, with_commas(r.file_bytes));
  if (r.format != "float32")
    text +=
        fmt::format(", {:+.1f} % of its float32 .tflite ({})",
                    100.0 * static_cast<double>(r.file_bytes - r.float32_bytes) / static_cast<double>(r.float32_bytes),
                    with_commas(r.float32_bytes));
  text += "\n";
  if (r.calibrated > 0) text += fmt::format("calibrated with {} samples\n", r.calibrated);
  if (r.equalized > 0) text += fmt::format("equalized {} pairs of layers\n", r.equalized);
  if (!r.left_float.empty())
    text += wrapped(fmt::format("stays in float32, because there is no integer operator: {}",
                                fmt::join(r.left_float, ", ")),
                    2) +
            "\n";
  if (!r.layers.empty()) text += "\nerror after each layer, the worst first\n" + layer_table(r, all);
  if (r.compared == 0) return text;
  text += fmt::format("\non {} samples, beside float32: mean squared error of the outputs {:.3g}", r.compared,
                      r.output_mean_square);
  if (r.agreement) text += fmt::format(", same class {:.2f} %", 100 * *r.agreement);
  if (r.accuracy)
    text += fmt::format("\naccuracy: float32 {:.4f}, {} {:.4f} ({:+.2f} points)", *r.float32_accuracy, r.format,
                        *r.accuracy, 100 * (*r.accuracy - *r.float32_accuracy));
  return text + "\n";
}

Result<int> quantize_command(QuantizeFlags& flags) {
  PLIMSOLL_TRY(read_flags(flags));
  flags.quantize.stop = &stop_requested();
  if (!flags.quiet && can_redraw())
    flags.quantize.progress = [](const std::string& doing, int64_t done, int64_t all) {
      draw(fmt::format("\r{}: {}/{} samples{}", doing, done, all, done == all ? "\n" : ""));
    };
  PLIMSOLL_ASSIGN(const QuantizeReport report, quantize(flags.quantize));
  nothing_to_lose();
  if (flags.json)
    answer(json_text(json_of(report)) + "\n");
  else
    answer(text_of(report, flags.all_layers));
  message(flags,
          fmt::format("process peak: {} of {}", format_bytes(report.peak_bytes), format_bytes(report.budget_bytes)));
  if (report.budget_bytes > 0)
    PLIMSOLL_TRY(check_peak(report.peak_bytes, report.budget_bytes, report.output + " was written"));
  return 0;
}

}  // namespace

void add_shrink_quantize(CLI::App& shrink, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = shrink.add_subcommand("quantize", "write a .tflite file: float32, float16 or integers");
  QuantizeOptions& o = flags->quantize;
  command->add_option("MODEL", flags->options.model, kModelHelp)->required();
  add_model_flags(*command, *flags);
  command->add_option("-o,--output", o.output, "the .tflite file to write")->required();
  command->add_option("--to", flags->to, "the format of the file")
      ->check(CLI::IsMember({"tflite"}))
      ->capture_default_str();
  command->add_flag("--float32", flags->float32, "32-bit floating point (default)");
  command->add_flag("--float16", flags->float16, "weights in float16; computed in float32");
  command->add_flag("--dynamic", flags->dynamic, "weights of large layers in int8; everything else in float32");
  command->add_flag("--int8", flags->int8, "weights and values in int8; needs --data to calibrate");
  command->add_option("--data", flags->options.data.data, data_help(false) + "; calibrates, and compares with float32");
  command->add_option("--validation-data", flags->options.data.validation_data,
                      "data to compare on instead, in the form of --data; with targets, the accuracy is printed");
  add_reading_flags(*command, flags->options.data.read);
  command->add_option("--calibration-samples", o.calibration_samples, "samples of --data that calibrate, evenly spread")
      ->check(whole_above_zero())
      ->capture_default_str();
  command->add_option("--calibration-method", flags->method, "how the range of a value follows from its samples")
      ->check(CLI::IsMember({"percentile", "minmax", "mse", "kl"}))
      ->capture_default_str();
  command->add_option("--percentile", o.int8.percent, "percent of the values that the range holds")
      ->check(CLI::Range(50.0, 100.0))
      ->capture_default_str();
  command->add_flag("--equalize", o.equalizes, "scale channels between layers so that their weights have equal ranges");
  command->add_flag("--no-bias-correction", flags->no_bias_correction, "do not correct the means that rounding moves");
  command->add_option("--keep-float", o.keep_float, "layers that stay in float32: names or patterns such as block1_*");
  command->add_option("--inputs", flags->inputs, "type of the model's inputs")
      ->check(CLI::IsMember({"float32", "int8", "uint8"}))
      ->capture_default_str();
  command->add_option("--outputs", flags->outputs, "type of the model's outputs")
      ->check(CLI::IsMember({"float32", "int8", "uint8"}))
      ->capture_default_str();
  command->add_flag("--all-layers", flags->all_layers, "list the error of every layer");
  command->footer(
      "Example: plimsoll shrink quantize model.keras --to tflite --int8 --data x_train.npy,y_train.npy -o "
      "model.tflite");
  actions[command] = [flags] {
    install_signal_handlers(kStopping, flags->json);
    return quantize_command(*flags);
  };
}

}  // namespace plimsoll::engine
