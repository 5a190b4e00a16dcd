// What the headers of pictures say about decoding them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/image/image.h"

namespace plimsoll::engine {

struct PictureSize {
  int64_t height = 0, width = 0, channels = 0;

  std::vector<int64_t> dims() const { return {height, width, channels}; }
};

struct SeenPictures {
  int64_t count = 0;
  std::array<int64_t, 4> of_kind{};
  double seconds = 0;    // to decode all of them on one thread: an estimate
  bool resized = false;  // one of them has another size than the model's input

  void add(const ImageHeader& header, const PictureSize& size);
  std::string work() const;  // "JPEG decode": that of the most frequent kind
};

}  // namespace plimsoll::engine
