#include "data/image_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>

#include "base/digest.h"
#include "data/folder_labels.h"
#include "data/numpy_shuffle.h"
#include "data/seen_pictures.h"
#include "formats/image/folder.h"
#include "formats/image/resize.h"

namespace plimsoll::engine {
namespace {

enum Field : size_t { kImage, kLabel };

// What one thread needs to decode a picture.
struct Decoder {
  ImageBuffer buffer;
  BilinearRows rows;
};

class ImageRows final : public RowSource {
 public:
  ImageRows(ClassFolder folder, PictureSize size, LabelMode mode, int threads)
      : folder_(std::move(folder)),
        mode_(mode),
        order_(folder_.files.size()),
        size_(size),
        channels_(static_cast<int>(size.channels)) {
    std::iota(order_.begin(), order_.end(), 0U);
    for (int i = 0; i < threads; ++i) decoders_.push_back({{}, BilinearRows(size.height, size.width, channels_)});
    for (Decoder& decoder : decoders_) free_.push_back(&decoder);
  }

  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  const ClassFolder& folder() const { return folder_; }

  // Reads the header of every picture, or all of it, and makes room for the largest. Without `skip`, fails at the first
  // damaged picture; with it, leaves damaged ones out and returns their number.
  Result<int64_t> look(bool skip) {
    std::vector<float> trial(skip ? static_cast<size_t>(decoders_[0].rows.elements()) : 0);
    std::vector<uint32_t> good;
    for (const uint32_t file : order_) {
      Status status = look_at(file, skip ? trial.data() : nullptr);
      if (status) {
        good.push_back(file);
      } else if (!skip) {
        return fail(std::move(status.error().remedy(
            "--on-bad-record skip   reads every picture once before the run, and leaves damaged ones out")));
      }
    }
    const auto bad = static_cast<int64_t>(order_.size() - good.size());
    order_ = std::move(good);
    for (Decoder& decoder : decoders_) decoder.buffer = decoders_[0].buffer;
    return bad;
  }

  void shuffle(uint32_t seed) {
    const auto places = numpy_shuffle(static_cast<uint32_t>(order_.size()), seed);
    std::vector<uint32_t> shuffled(order_.size());
    for (size_t i = 0; i < places.size(); ++i) shuffled[i] = order_[places[i]];
    order_ = std::move(shuffled);
  }

  Bytes bytes() const override {
    constexpr Bytes kCode = kMiB;  // pages of libjpeg and libpng that decoding touches
    Bytes bytes = folder_.files.bytes() + static_cast<Bytes>(folder_.labels.capacity() * sizeof(int32_t)) +
                  static_cast<Bytes>(order_.capacity() * sizeof(uint32_t)) + kCode;
    for (const Decoder& decoder : decoders_)
      bytes +=
          static_cast<Bytes>(decoder.buffer.memory.capacity()) + decoder.buffer.library_bytes + decoder.rows.bytes();
    return bytes;
  }

  Status read(size_t field, int64_t record, void* into) override {
    const uint32_t file = order_[static_cast<size_t>(record)];
    if (field == kLabel) {
      write_class(folder_.labels[file], mode_, static_cast<int64_t>(folder_.classes.size()), into);
      return {};
    }
    Decoder& decoder = take();
    RowTimes times;
    Status status;
    {
      const ReadClock clock(times);
      status = decode(decoder, file, static_cast<float*>(into), &times.file_seconds);
    }
    give_back(decoder, times);
    return status;
  }

  std::optional<Decoding> decoding(size_t field) const override {
    if (field != kImage || seen_.count == 0) return std::nullopt;
    return Decoding{seen_.work(), seen_.seconds / static_cast<double>(seen_.count), !seen_.resized};
  }

  int readers() const override { return static_cast<int>(decoders_.size()); }

  RowTimes times() const override {
    const std::lock_guard lock(mutex_);
    return times_;
  }

  Result<std::string> digest(size_t field) override {
    Digest digest;
    for (const uint32_t file : order_) {
      PLIMSOLL_ASSIGN(const File opened, File::open_read(path_of(file)));
      const int64_t size = opened.size();
      digest.add(bytes_of_text(folder_.files[file]));
      if (field == kImage) digest.add(bytes_of(size));
    }
    return digest.text();
  }

 private:
  std::string path_of(uint32_t file) const { return fmt::format("{}/{}", folder_.path, folder_.files[file]); }

  // Reads the header, and decodes the picture to `trial` if there is one.
  Status look_at(uint32_t file, float* trial) {
    PLIMSOLL_ASSIGN(const File opened, File::open_read(path_of(file)));
    PLIMSOLL_ASSIGN(const ImageHeader header, read_image_header(EncodedImage::whole(opened)));
    decoders_[0].buffer.fit(header);
    if (trial != nullptr) PLIMSOLL_TRY(decode(decoders_[0], file, trial));
    seen_.add(header, size_);
    return {};
  }

  Decoder& take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !free_.empty(); });
    Decoder* const decoder = free_.back();
    free_.pop_back();
    return *decoder;
  }

  void give_back(Decoder& decoder, const RowTimes& times) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(&decoder);
      times_.add(times);
    }
    changed_.notify_one();
  }

  Status decode(Decoder& decoder, uint32_t file, float* into, double* file_seconds = nullptr) {
    PLIMSOLL_ASSIGN(const File opened, File::open_read(path_of(file)));
    EncodedImage image = EncodedImage::whole(opened);
    image.read_seconds = file_seconds;
    decoder.rows.write_to(into);
    PLIMSOLL_TRY(decode_image(image, channels_, decoder.buffer, decoder.rows));
    if (decoder.rows.done()) return {};
    return fail(bad_image(image, "the picture has fewer rows than its header says", image.size));
  }

  const ClassFolder folder_;
  const LabelMode mode_;
  std::vector<uint32_t> order_;  // for each record, its file
  const PictureSize size_;
  const int channels_;
  SeenPictures seen_;
  std::deque<Decoder> decoders_;  // a thread has one of them at a time
  mutable std::mutex mutex_;      // of the members below
  std::condition_variable changed_;
  std::vector<Decoder*> free_;
  RowTimes times_;
};

Error usage(const std::string& path, std::string what) {
  return {ErrorCode::kUsage, fmt::format("--data {}: {}", path, what), {}, {}};
}

Result<PictureSize> picture_size(const std::string& path, const DataSpec& spec) {
  if (spec.inputs.size() != 1)
    return fail(usage(
        path, fmt::format("a folder of pictures needs a model with one input; this one has {}", spec.inputs.size())));
  const Shape& sample = spec.inputs[0].sample;
  if (sample.rank() != 3)
    return fail(Error{ErrorCode::kDataShape,
                      fmt::format("{}: pictures have a height, a width and channels; the model's input '{}' is [{}]",
                                  path, spec.inputs[0].name, to_text(sample)),
                      {},
                      {}});
  PictureSize size{sample[0], sample[1], sample[2]};
  if (spec.read.image_size) {
    size.height = (*spec.read.image_size)[0];
    size.width = (*spec.read.image_size)[1];
  }
  if (size.channels == 1 || size.channels == 3 || size.channels == 4) return size;
  return fail(Error{ErrorCode::kDataShape,
                    fmt::format("{}: pictures have 1, 3 or 4 channels; the model's input '{}' has {}", path,
                                spec.inputs[0].name, size.channels),
                    {},
                    {}});
}

}  // namespace

std::vector<int64_t> image_sample_shape(const DataSpec& spec) {
  const auto size = spec.read.image_size.value_or(std::array{kImageSide, kImageSide});
  return {size[0], size[1], 3};
}

Result<FoundArrays> open_image_folder(const std::string& path, const DataSpec& spec) {
  PLIMSOLL_ASSIGN(const PictureSize size, picture_size(path, spec));
  PLIMSOLL_ASSIGN(ClassFolder folder, list_images(path, spec.needs_targets));
  if (folder.files.size() > UINT32_MAX) return fail(usage(path, "it has more than 2^32 files"));
  LabelMode mode = LabelMode::kInteger;
  if (spec.needs_targets) {
    PLIMSOLL_ASSIGN(mode, label_mode(path, spec, folder.classes, "picture"));
  }
  const auto rows = std::make_shared<ImageRows>(std::move(folder), size, mode, std::max(spec.read.threads, 1));
  if (spec.split_seed) {
    PLIMSOLL_ASSIGN(const uint32_t seed, seed_of_split(*spec.split_seed));
    rows->shuffle(seed);
  }
  PLIMSOLL_ASSIGN(const int64_t bad, rows->look(spec.read.skip_bad_records));
  PLIMSOLL_TRY(tell_left_out(spec.read, path, bad, "pictures"));
  if (rows->size() == 0)
    return fail(Error{ErrorCode::kDataEmpty, fmt::format("{}: every picture is damaged", path), {}, {}});
  const auto classes = static_cast<int64_t>(rows->folder().classes.size());
  FoundArrays arrays;
  arrays.folder = true;
  arrays.inputs.push_back(array_of_rows(path, DType::kFloat32, rows->size(), size.dims(), rows, kImage));
  if (!spec.needs_targets) return arrays;
  arrays.targets.push_back(array_of_classes(path, mode, classes, rows->size(), rows, kLabel));
  return arrays;
}

}  // namespace plimsoll::engine
