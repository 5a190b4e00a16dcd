// The numbers of a reduction as an .npz: NumPy reads it too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/reduce.h"
#include "formats/npy/npy.h"
#include "formats/npz/npz.h"
#include "formats/zip/zip_writer.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 28;

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, double> ? DType::kFloat64 : DType::kInt64;

template <typename T>
Status add(ZipWriter& zip, const std::string& name, const std::vector<int64_t>& dims, std::span<const T> values) {
  const std::string header = npy_header(kDTypeOf<T>, dims);
  const auto bytes = std::as_bytes(values);
  return zip.add(name + ".npy", static_cast<int64_t>(header.size() + bytes.size()), [&](const Sink& sink) -> Status {
    PLIMSOLL_TRY(sink(bytes_of_text(header)));
    return sink(bytes);
  });
}

class Reader {
 public:
  static Result<Reader> open(const std::string& path) {
    PLIMSOLL_ASSIGN(auto names, npz_names(path));
    return Reader(path, std::move(names));
  }

  bool has(const std::string& name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

  Error bad(const std::string& name, const std::string& why) const {
    return {ErrorCode::kBadDataFile,
            fmt::format("{}: {} {}", path_, name, why),
            {"expected: a file that `plimsoll reduce` wrote"},
            {}};
  }

  // An array with `rank` dimensions.
  template <typename T>
  Result<std::vector<T>> read(const std::string& name, size_t rank, std::vector<int64_t>* dims = nullptr) const {
    PLIMSOLL_ASSIGN(const ArraySource source, open_npz(path_, name));
    if (source.dtype != kDTypeOf<T> || source.dims.size() != rank)
      return fail(bad(name, fmt::format("is {} of {} dimensions, not {} of {}", keras_name(source.dtype),
                                        source.dims.size(), keras_name(kDTypeOf<T>), rank)));
    const auto bytes = array_bytes(source.dtype, source.dims);
    if (!bytes || *bytes == 0 || *bytes > kMostNumbers * static_cast<Bytes>(sizeof(T)))
      return fail(bad(name, fmt::format("has the shape {}", dims_text(source.dims))));
    std::vector<T> values(static_cast<size_t>(*bytes) / sizeof(T));
    PLIMSOLL_ASSIGN(const File file, File::open_read(source.path));
    PLIMSOLL_TRY(file.pread_exact(source.offset, std::as_writable_bytes(std::span(values))));
    if constexpr (std::is_same_v<T, double>)
      if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
        return fail(bad(name, "holds NaN or infinity"));
    if (dims != nullptr) *dims = source.dims;
    return values;
  }

 private:
  Reader(std::string path, std::vector<std::string> names) : path_(std::move(path)), names_(std::move(names)) {}
  std::string path_;
  std::vector<std::string> names_;
};

int64_t product(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t d : dims)
    if (d < 1 || __builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

Status read_pca(const Reader& file, int64_t elements, Reduction& r) {
  std::vector<int64_t> dims;
  PLIMSOLL_ASSIGN(r.mean, file.read<double>("pca_mean", 1));
  PLIMSOLL_ASSIGN(r.components, file.read<double>("pca_components", 2, &dims));
  PLIMSOLL_ASSIGN(r.variances, file.read<double>("pca_explained_variance", 1));
  if (static_cast<int64_t>(r.mean.size()) != elements || dims[1] != elements ||
      dims[0] != static_cast<int64_t>(r.variances.size()))
    return fail(file.bad("pca_components",
                         fmt::format("has the shape {} for samples of {} numbers", dims_text(dims), elements)));
  PLIMSOLL_ASSIGN(const auto total, file.read<double>("pca_total_variance", 1));
  r.total_variance = total[0];
  return {};
}

}  // namespace

Status save_reduction(const std::string& path, const Reduction& r) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  ZipWriter zip(file);
  const auto count = [](const auto& values) { return std::vector{static_cast<int64_t>(values.size())}; };
  PLIMSOLL_TRY(add<int64_t>(zip, "input_shape", count(r.input), r.input));
  if (r.kind == Reduction::Kind::kPca) {
    const std::array total = {r.total_variance};
    PLIMSOLL_TRY(add<double>(zip, "pca_mean", count(r.mean), r.mean));
    PLIMSOLL_TRY(
        add<double>(zip, "pca_components", {r.components_count(), static_cast<int64_t>(r.mean.size())}, r.components));
    PLIMSOLL_TRY(add<double>(zip, "pca_explained_variance", count(r.variances), r.variances));
    PLIMSOLL_TRY(add<double>(zip, "pca_total_variance", {1}, total));
  } else if (r.kind == Reduction::Kind::kFeatures) {
    PLIMSOLL_TRY(add<int64_t>(zip, "features", count(r.features), r.features));
  } else {
    PLIMSOLL_TRY(add<int64_t>(zip, "resolution", {2}, r.resolution));
  }
  PLIMSOLL_TRY(zip.finish());
  return file.commit();
}

Result<Reduction> load_reduction(const std::string& path) {
  PLIMSOLL_ASSIGN(const Reader file, Reader::open(path));
  Reduction r;
  PLIMSOLL_ASSIGN(r.input, file.read<int64_t>("input_shape", 1));
  const int64_t elements = product(r.input);
  if (elements < 1 || elements > kMostNumbers) return fail(file.bad("input_shape", "is " + dims_text(r.input)));
  if (file.has("pca_mean")) {
    r.kind = Reduction::Kind::kPca;
    PLIMSOLL_TRY(read_pca(file, elements, r));
  } else if (file.has("features")) {
    r.kind = Reduction::Kind::kFeatures;
    PLIMSOLL_ASSIGN(r.features, file.read<int64_t>("features", 1));
    for (const int64_t feature : r.features)
      if (feature < 0 || feature >= elements)
        return fail(file.bad("features", fmt::format("names feature {} of {}", feature, elements)));
  } else {
    r.kind = Reduction::Kind::kResolution;
    PLIMSOLL_ASSIGN(const auto size, file.read<int64_t>("resolution", 1));
    if (size.size() != 2 || size[0] < 1 || size[1] < 1 || size[0] > 65536 || size[1] > 65536 || r.input.size() < 2 ||
        r.input.size() > 3)
      return fail(file.bad("resolution", "is no height and width of pictures"));
    std::copy_n(size.begin(), 2, r.resolution.begin());
  }
  return r;
}

}  // namespace plimsoll::engine
