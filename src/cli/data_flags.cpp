#include "cli/data_flags.h"

#include <fmt/format.h>

#include <map>

namespace plimsoll::engine {

namespace {

void set_cache(const std::string& text, CacheOptions& cache) {
  using enum CacheOptions::When;
  cache.when = text == "off" ? kOff : text == "auto" ? kAuto : kAlways;
  cache.most = 0;
  if (cache.when != kAlways) return;
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < 1)
    throw CLI::ValidationError("--cache-images", fmt::format("takes auto, off, or bytes as 2GiB, got '{}'", text));
  cache.most = *bytes;
}

// Training alone reads pictures more than once.
void add_cache_flags(CLI::App& command, ReadOptions& read) {
  read.cache.when = CacheOptions::When::kAuto;
  command.add_option_function<std::string>(
      "--cache-images", [&](const std::string& text) { set_cache(text, read.cache); },
      "how much disk decoded pictures may take, so that later epochs need not decode them: 2GiB, off, or auto, which "
      "uses at most half of what is free, if it saves time (default: auto)");
  command.add_option("--cache-folder", read.cache.folder,
                     "folder on the disk for --cache-images; nothing is left there (default: that of plimsoll doctor)");
  const std::map<std::string, bool> pixels = {{"exact", false}, {"uint8", true}};
  command
      .add_option(
          "--cache-pixels", read.cache.round_pixels,
          "how --cache-images keeps resized pictures: exact, or uint8, which rounds all pixels to whole numbers and "
          "takes a quarter of the disk (default: exact)")
      ->transform(CLI::Transformer(pixels));
  using enum ShuffleOptions::By;
  const std::map<std::string, ShuffleOptions::By> ways = {{"auto", kAuto}, {"index", kIndex}, {"disk", kDisk}};
  read.shuffle.by = kAuto;
  command
      .add_option("--shuffle-by", read.shuffle.by,
                  "how a shuffled epoch is read: index reads record by record, disk deals all records to buckets in a "
                  "temporary file first, auto takes the faster one; the order is the same (default: auto)")
      ->transform(CLI::Transformer(ways));
  command.add_option("--data-threads", read.threads, "threads that decode pictures")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

}  // namespace

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
  add_reading_flags(command, options.read);
  add_cache_flags(command, options.read);
  return command.add_option("--data", options.data, data_text);
}

std::array<int64_t, 2> parse_image_size(const std::string& text, const std::string& flag) {
  constexpr int64_t kMost = 1 << 16;
  const size_t comma = std::min(text.find(','), text.size());
  const auto height = read_number<int64_t>(text.substr(0, comma));
  const auto width = comma == text.size() ? height : read_number<int64_t>(text.substr(comma + 1));
  if (!height || !width || *height < 1 || *width < 1 || *height > kMost || *width > kMost)
    throw CLI::ValidationError(flag, fmt::format("takes HEIGHT,WIDTH, got '{}'", text));
  return {*height, *width};
}

void add_reading_flags(CLI::App& command, ReadOptions& options) {
  command.add_option_function<std::string>(
      "--image-size", [&](const std::string& text) { options.image_size = parse_image_size(text, "--image-size"); },
      "height and width that pictures are resized to: 224,224 (default: those of the model's input)");
  const std::map<std::string, LabelMode> modes = {
      {"int", LabelMode::kInteger}, {"categorical", LabelMode::kCategorical}, {"binary", LabelMode::kBinary}};
  command
      .add_option("--label-mode", options.label_mode,
                  "labels of a folder of pictures: int, categorical or binary (default: what the loss takes)")
      ->transform(CLI::Transformer(modes));
  command.add_option("--features", options.features,
                     "features of a TFRecord that the model takes: x=image,y=label, with a dtype for raw bytes: "
                     "x=image:uint8 (default: by usual names)");
  command.add_option("--label-column", options.label_column,
                     "the column of a CSV that holds the labels: its name, or its number from 0");
  const std::map<std::string, MissingValue> missing = {
      {"stop", MissingValue::kStop}, {"zero", MissingValue::kZero}, {"drop", MissingValue::kDrop}};
  command.add_option("--missing", options.missing, "what a missing value of a CSV does: stop, zero, or drop its line")
      ->transform(CLI::Transformer(missing));
  const std::map<std::string, bool> records = {{"stop", false}, {"skip", true}};
  command
      .add_option("--on-bad-record", options.skip_bad_records,
                  "what a damaged record does: stop, or skip, which reads all records once before the run")
      ->transform(CLI::Transformer(records));
  command
      .add_option("--max-bad-records", options.most_bad_records,
                  "with --on-bad-record skip, more damaged records than this end the run (default: any number)")
      ->check(whole_from_zero());
}

Status check_data_flags(const DataOptions& options) {
  const CacheOptions& cache = options.read.cache;
  if (cache.when == CacheOptions::When::kOff && (cache.round_pixels || !cache.folder.empty()))
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--cache-images off cannot be combined with {}",
                                  cache.round_pixels ? "--cache-pixels uint8" : "--cache-folder"),
                      {},
                      {"remove one of them"}});
  if (options.validation_split >= 0 && options.validation_split < 1) return {};
  return fail(Error{
      ErrorCode::kUsage,
      fmt::format("--validation-split takes a fraction of at least 0 and below 1, got {}", options.validation_split),
      {},
      {"--validation-split 0.2"}});
}

}  // namespace plimsoll::engine
