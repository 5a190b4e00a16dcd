// How --data is read, beyond the names of files.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace plimsoll::engine {

// Keras's label_mode. kOfModel: what the model's loss takes.
enum class LabelMode : uint8_t { kOfModel, kInteger, kCategorical, kBinary };

// What a missing value of a CSV does: end the run, become 0, or leave out its line.
enum class MissingValue : uint8_t { kStop, kZero, kDrop };

// --cache-images: decoded pictures are kept on the disk, so that they are decoded once and not in each epoch.
struct CacheOptions {
  enum class When : uint8_t { kOff, kAuto, kAlways };
  When when = When::kOff;
  Bytes most = 0;             // of the disk; 0: half of what is free there
  std::string folder;         // "": that of plimsoll doctor
  bool round_pixels = false;  // --cache-pixels uint8: pixels are rounded to whole numbers, which take a quarter
  int64_t epochs = 1;         // passes over the data
  Bytes page_room = 0;        // memory beyond the budget that the kernel's page cache may take
};

// --shuffle-by: how the records of a shuffled epoch are found.
struct ShuffleOptions {
  enum class By : uint8_t { kAuto, kIndex, kDisk };
  By by = By::kIndex;
  std::string folder;   // "": that of plimsoll doctor
  Bytes page_room = 0;  // memory beyond the budget that keeps the data after they were read once
};

struct ReadOptions {
  std::optional<std::array<int64_t, 2>> image_size;  // height and width; absent: those of the model's input
  LabelMode label_mode = LabelMode::kOfModel;
  // Which feature of a TFRecord is which array: "x=image,y=label". For raw bytes their dtype may
  // follow: "x=image:uint8". The names are those of the model's inputs and outputs, or x, y and sample_weight.
  // "x=words:variable" pads shorter lists to the length of the model's input; "x=words:cut" cuts longer ones too.
  std::string features;
  double padding = 0;        // what fills the end of a feature of variable length
  std::string label_column;  // of a CSV: its name, or its number from 0; "": one with a usual name
  MissingValue missing = MissingValue::kStop;
  // A damaged record is an error. If true, all records are read once before the run, damaged ones are left out, and
  // `note` gets their number.
  bool skip_bad_records = false;
  CacheOptions cache;
  ShuffleOptions shuffle;
  int threads = 1;                               // that decode pictures
  int64_t most_bad_records = INT64_MAX;          // more damaged records than this are an error even if they are skipped
  std::function<void(const std::string&)> note;  // receives notes for the user; may be empty
};

}  // namespace plimsoll::engine
