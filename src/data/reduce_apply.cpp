// Applies reductions and subsets to a stream, block by block.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/philox.h"
#include "data/reduce_passes.h"

namespace plimsoll::engine {
namespace {

// Bilinear without antialiasing, with half-pixel centres: tf.image.resize.
struct Between {
  int64_t low = 0, high = 0;
  float share = 0;  // of `high`
};
std::vector<Between> between(int64_t from, int64_t to) {
  std::vector<Between> places(static_cast<size_t>(to));
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (int64_t i = 0; i < to; ++i) {
    const float at = (static_cast<float>(i) + 0.5F) * scale - 0.5F, floor = std::floor(at);
    places[static_cast<size_t>(i)] = {std::max<int64_t>(static_cast<int64_t>(floor), 0),
                                      std::min(static_cast<int64_t>(std::ceil(at)), from - 1), at - floor};
  }
  return places;
}

class ReducedStream final : public ArrayStream {
 public:
  ReducedStream(std::unique_ptr<ArrayStream> data, Reduction reduction)
      : data_(std::move(data)), reduction_(std::move(reduction)), arrays_(data_->arrays()) {
    StreamedArray& x = arrays_[0];
    if (reduction_.kind == Reduction::Kind::kResolution) {
      rows_ = between(x.sample[0], reduction_.resolution[0]);
      columns_ = between(x.sample[1], reduction_.resolution[1]);
      std::copy_n(reduction_.resolution.begin(), 2, x.sample.begin());
      x.dtype = x.dtype == DType::kUInt8 ? DType::kUInt8 : DType::kFloat32;
    } else if (reduction_.kind == Reduction::Kind::kPca) {
      x.sample = {reduction_.components_count()};
      x.dtype = DType::kFloat32;
    } else {
      x.sample = {static_cast<int64_t>(reduction_.features.size())};
    }
  }

  const std::vector<StreamedArray>& arrays() const override { return arrays_; }

  Bytes buffer_bytes(std::span<const size_t> which) const override {
    const int64_t elements = data_->arrays()[0].elements();
    return data_->buffer_bytes(which) + (rows_at_once(data_->arrays()[0].row_bytes()) + 1) * arrays_[0].row_bytes() +
           number_bytes(elements, 1);
  }

  Status stream(std::span<const size_t> which, const RowSink& sink) override {
    std::vector<std::byte> made;
    std::vector<std::span<const std::byte>> block(which.size());
    return data_->stream(which, [&](int64_t first, int64_t count, RowBlock rows) -> Status {
      for (size_t k = 0; k < which.size(); ++k) {
        block[k] = rows[k];
        if (which[k] != 0) continue;
        made.resize(static_cast<size_t>(count * arrays_[0].row_bytes()));
        PLIMSOLL_TRY(reduce(first, count, rows[k].data(), made.data()));
        block[k] = made;
      }
      return sink(first, count, block);
    });
  }

 private:
  Status reduce(int64_t first, int64_t count, const std::byte* from, std::byte* to) const {
    const StreamedArray& x = data_->arrays()[0];
    const Bytes source = x.row_bytes(), result = arrays_[0].row_bytes();
    if (reduction_.kind == Reduction::Kind::kFeatures) {
      const Bytes size = size_of(x.dtype);
      for (int64_t r = 0; r < count; ++r)
        for (const int64_t feature : reduction_.features) {
          std::memcpy(to, from + r * source + feature * size, static_cast<size_t>(size));
          to += size;
        }
      return {};
    }
    std::vector<double> numbers(static_cast<size_t>(x.elements()));
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < x.elements(); ++i) {
        numbers[static_cast<size_t>(i)] = element(x.dtype, from + r * source, i);
        if (!std::isfinite(numbers[static_cast<size_t>(i)]))
          return fail(ErrorCode::kDataNotFinite, fmt::format("{}: row {} holds {}", x.name, first + r,
                                                             element_text(x.dtype, from + r * source, i)));
      }
      if (reduction_.kind == Reduction::Kind::kPca)
        project(numbers, reinterpret_cast<float*>(to + r * result));
      else
        resize(numbers, to + r * result);
    }
    return {};
  }

  void project(std::vector<double>& x, float* to) const {
    const auto n = static_cast<int64_t>(x.size());
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] -= reduction_.mean[static_cast<size_t>(i)];
    for (int64_t c = 0; c < reduction_.components_count(); ++c) {
      const double* component = reduction_.components.data() + c * n;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += component[i] * x[static_cast<size_t>(i)];
      to[c] = static_cast<float>(sum);
    }
  }

  void resize(const std::vector<double>& x, std::byte* to) const {
    const auto& sample = data_->arrays()[0].sample;
    const int64_t width = sample[1], channels = sample.size() == 3 ? sample[2] : 1;
    const auto at = [&](int64_t row, int64_t column, int64_t c) {
      return static_cast<float>(x[static_cast<size_t>((row * width + column) * channels + c)]);
    };
    int64_t i = 0;
    for (const Between& row : rows_)
      for (const Between& column : columns_)
        for (int64_t c = 0; c < channels; ++c, ++i) {
          const float top =
              at(row.low, column.low, c) + (at(row.low, column.high, c) - at(row.low, column.low, c)) * column.share;
          const float bottom =
              at(row.high, column.low, c) + (at(row.high, column.high, c) - at(row.high, column.low, c)) * column.share;
          const float value = top + (bottom - top) * row.share;
          if (arrays_[0].dtype == DType::kUInt8)
            to[i] = static_cast<std::byte>(std::clamp(std::nearbyint(value), 0.0F, 255.0F));
          else
            reinterpret_cast<float*>(to)[i] = value;
        }
  }

  std::unique_ptr<ArrayStream> data_;
  const Reduction reduction_;
  std::vector<StreamedArray> arrays_;
  std::vector<Between> rows_, columns_;
};

// The class of a row of `y`: its number, or the position of the largest of several.
int64_t class_of(const StreamedArray& y, const std::byte* row) {
  if (y.elements() == 1)
    return is_floating(y.dtype) ? std::llround(element(y.dtype, row, 0)) : integer_element(y.dtype, row, 0);
  int64_t best = 0;
  for (int64_t i = 1; i < y.elements(); ++i)
    if (element(y.dtype, row, i) > element(y.dtype, row, best)) best = i;
  return best;
}

struct Quota {
  int64_t rows = 0, wanted = 0;
};
using Quotas = std::map<int64_t, Quota>;

// Selection sampling (Knuth, "The Art of Computer Programming", volume 2, 3.4.2, algorithm S), for each class.
class SubsetStream final : public ArrayStream {
 public:
  SubsetStream(std::unique_ptr<ArrayStream> data, Quotas quotas, bool by_class, uint64_t seed)
      : data_(std::move(data)), quotas_(std::move(quotas)), by_class_(by_class), seed_(seed), arrays_(data_->arrays()) {
    int64_t rows = 0;
    for (const auto& [label, quota] : quotas_) rows += quota.wanted;
    for (StreamedArray& array : arrays_) array.rows = rows;
  }

  const std::vector<StreamedArray>& arrays() const override { return arrays_; }

  Bytes buffer_bytes(std::span<const size_t> which) const override {
    return 2 * data_->buffer_bytes(with_labels(which)) + static_cast<Bytes>(quotas_.size() * 2 * 64);
  }

  Status stream(std::span<const size_t> which, const RowSink& sink) override {
    const auto read = with_labels(which);
    const auto labels = static_cast<size_t>(std::find(read.begin(), read.end(), size_t{1}) - read.begin());
    Quotas left = quotas_;
    int64_t taken = 0;
    std::vector<std::vector<std::byte>> kept(which.size());
    return data_->stream(read, [&](int64_t first, int64_t count, RowBlock rows) -> Status {
      for (auto& one : kept) one.clear();
      int64_t here = 0;
      for (int64_t r = 0; r < count; ++r) {
        const int64_t label = by_class_ ? class_of(arrays_[1], rows[labels].data() + r * arrays_[1].row_bytes()) : 0;
        Quota& quota = left[label];
        const auto word =
            Philox::draw(seed_, {static_cast<uint32_t>(first + r), static_cast<uint32_t>((first + r) >> 32), 1, 0});
        const double u = (static_cast<double>(word[0]) * 0x1p32 + static_cast<double>(word[1])) * 0x1p-64;
        const bool takes = quota.wanted > 0 && u * static_cast<double>(quota.rows) < static_cast<double>(quota.wanted);
        --quota.rows;
        if (!takes) continue;
        --quota.wanted;
        ++here;
        for (size_t k = 0; k < which.size(); ++k) {
          const Bytes bytes = arrays_[which[k]].row_bytes();
          const auto row = rows[k].subspan(static_cast<size_t>(r * bytes), static_cast<size_t>(bytes));
          kept[k].insert(kept[k].end(), row.begin(), row.end());
        }
      }
      if (here == 0) return {};
      const std::vector<std::span<const std::byte>> block(kept.begin(), kept.end());
      taken += here;
      return sink(taken - here, here, block);
    });
  }

 private:
  // The arrays that must be read: the chosen ones first.
  std::vector<size_t> with_labels(std::span<const size_t> which) const {
    std::vector<size_t> read(which.begin(), which.end());
    if (by_class_ && std::find(read.begin(), read.end(), size_t{1}) == read.end()) read.push_back(1);
    return read;
  }

  std::unique_ptr<ArrayStream> data_;
  const Quotas quotas_;
  const bool by_class_;
  const uint64_t seed_;
  std::vector<StreamedArray> arrays_;
};

Error usage(std::string what) {
  return {ErrorCode::kUsage, std::move(what), {}, {}};
}

// The share of each class, by largest remainders.
void share_out(Quotas& quotas, int64_t count, int64_t rows) {
  __extension__ using Wide = __int128;  // count * rows may need more than 64 bits
  std::vector<std::pair<Wide, int64_t>> remainders;
  int64_t given = 0;
  for (auto& [label, quota] : quotas) {
    const Wide exact = static_cast<Wide>(count) * quota.rows;
    quota.wanted = static_cast<int64_t>(exact / rows);
    given += quota.wanted;
    remainders.emplace_back(exact % rows, label);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; given < count; ++i, ++given) ++quotas[remainders[i].second].wanted;
}

}  // namespace

Result<std::unique_ptr<ArrayStream>> reduced(std::unique_ptr<ArrayStream> data, Reduction reduction) {
  const auto& sample = data->arrays()[0].sample;
  const bool pictures = reduction.kind == Reduction::Kind::kResolution;
  if (pictures ? sample.size() != reduction.input.size() : sample != reduction.input)
    return fail(ErrorCode::kDataShape, fmt::format("a sample has the shape {}; the reduction was found for {}",
                                                   dims_text(sample), dims_text(reduction.input)));
  return std::make_unique<ReducedStream>(std::move(data), std::move(reduction));
}

Result<std::unique_ptr<ArrayStream>> subset(std::unique_ptr<ArrayStream> data, int64_t count, bool stratified,
                                            uint64_t seed) {
  const int64_t rows = data->arrays()[0].rows;
  if (count > rows) return fail(usage(fmt::format("--take {}: there are only {} samples", count, rows)));
  Quotas quotas;
  if (!stratified) {
    quotas[0] = {rows, count};
    return std::make_unique<SubsetStream>(std::move(data), std::move(quotas), false, seed);
  }
  if (data->arrays().size() < 2) return fail(usage("--stratified needs targets"));
  constexpr size_t kMostClasses = 65536;
  const std::array<size_t, 1> labels = {1};
  const StreamedArray& y = data->arrays()[1];
  PLIMSOLL_TRY(data->stream(labels, [&](int64_t, int64_t here, RowBlock block) -> Status {
    for (int64_t r = 0; r < here; ++r) ++quotas[class_of(y, block[0].data() + r * y.row_bytes())].rows;
    if (quotas.size() <= kMostClasses) return {};
    return fail(usage(fmt::format("--stratified: the targets have more than {} different values", kMostClasses)));
  }));
  share_out(quotas, count, rows);
  return std::make_unique<SubsetStream>(std::move(data), std::move(quotas), true, seed);
}

}  // namespace plimsoll::engine
