#include "formats/hdf5/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "formats/file/array_source.h"
#include "formats/hdf5/impl.h"

namespace plimsoll {
namespace {

tl::unexpected<Error> bad(const std::string& label, std::string_view what) {
  Error error{ErrorCode::kBadWeightsFile, fmt::format("{}: {}", label, what), {}, {}};
  return fail(std::move(error.remedy("save the model again; the HDF5 file is damaged or of another kind")));
}

std::optional<uint64_t> as_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Part by part, numbers as numbers.
bool counted_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const auto part_a = a.substr(0, a.find('/')), part_b = b.substr(0, b.find('/'));
    if (part_a != part_b) {
      const auto number_a = as_number(part_a), number_b = as_number(part_b);
      if (number_a && number_b && *number_a != *number_b) return *number_a < *number_b;
      return part_a < part_b;
    }
    a.remove_prefix(std::min(a.size(), part_a.size() + 1));
    b.remove_prefix(std::min(b.size(), part_b.size() + 1));
  }
  return a.size() < b.size();
}

Dataset describe(hid_t dataset, const char* path) {
  Dataset result{path, {}, ""};
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    result.unreadable = "it has no elements";
    return result;
  }
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  std::vector<int64_t> shape(dims.begin(), dims.end());
  auto element = hdf5_element(dataset);
  result.unreadable = std::move(element.unreadable);
  if (!array_bytes(element.dtype.value_or(DType::kFloat64), shape)) {
    result.unreadable = fmt::format("the shape {} is too large", dims_text(shape));
    return result;
  }
  result.type = {element.dtype.value_or(DType::kFloat32), Shape(std::move(shape))};
  return result;
}

herr_t list_dataset(hid_t root, const char* name, const H5O_info_t* info, void* list) {
  return hdf5_callback([&] {
    if (info->type != H5O_TYPE_DATASET) return true;
    const Hdf5Id dataset(H5Dopen2(root, name, H5P_DEFAULT), H5Dclose);
    if (dataset) static_cast<std::vector<Dataset>*>(list)->push_back(describe(dataset.get(), name));
    return static_cast<bool>(dataset);
  });
}

}  // namespace

WeightsFile::WeightsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightsFile::WeightsFile(WeightsFile&&) noexcept = default;

WeightsFile& WeightsFile::operator=(WeightsFile&& other) noexcept {
  impl_.swap(other.impl_);
  return *this;
}

WeightsFile::~WeightsFile() {
  if (!impl_) return;
  const Hdf5Lock lock;
  impl_.reset();
  H5garbage_collect();  // HDF5 keeps what it freed on lists of its own
}

Result<WeightsFile> WeightsFile::open(const std::string& path, const std::string& label) {
  PLIMSOLL_ASSIGN(auto file, File::open_read(path));
  const int64_t bytes = file.size();
  return open(std::move(file), 0, bytes, label);
}

Result<WeightsFile> WeightsFile::open(File file, int64_t offset, int64_t bytes, const std::string& label) {
  WeightsFile result(std::make_unique<Impl>());  // its destructor takes the lock, so it must outlive ours
  const Hdf5Lock lock;
  auto& opened = *result.impl_;
  opened.label = label;
  opened.input = std::move(file);
  opened.region = {&opened.input, nullptr, offset, bytes, {}};
  const Hdf5Id access = hdf5_access();
  hdf5_use_region(access, opened.region);
  opened.file = Hdf5Id(H5Fopen(label.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!opened.file) {
    hdf5_rethrow();
    return bad(label, fmt::format("HDF5 cannot open it: {}", hdf5_reason()));
  }
  if (H5Ovisit(opened.file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, list_dataset, &opened.datasets) < 0) {
    hdf5_rethrow();
    return bad(label, fmt::format("HDF5 cannot list it: {}", hdf5_reason()));
  }
  std::sort(opened.datasets.begin(), opened.datasets.end(),
            [](const Dataset& a, const Dataset& b) { return counted_less(a.path, b.path); });
  return result;
}

const std::string& WeightsFile::label() const {
  return impl_->label;
}
const std::vector<Dataset>& WeightsFile::datasets() const {
  return impl_->datasets;
}

const Dataset* WeightsFile::find(std::string_view path) const {
  const auto& all = impl_->datasets;
  const auto at = std::lower_bound(all.begin(), all.end(), path,
                                   [](const Dataset& a, std::string_view b) { return counted_less(a.path, b); });
  return at != all.end() && at->path == path ? &*at : nullptr;
}

std::vector<const Dataset*> WeightsFile::under(std::string_view group) const {
  std::vector<const Dataset*> found;
  for (const auto& dataset : impl_->datasets)
    if (group.empty() ||
        (dataset.path.starts_with(group) && dataset.path.size() > group.size() && dataset.path[group.size()] == '/'))
      found.push_back(&dataset);
  return found;
}

Status WeightsFile::read_into(std::string_view path, const TensorType& type, void* destination) const {
  const auto* stored = find(path);
  if (stored == nullptr)
    return fail(ErrorCode::kWeightMissing,
                fmt::format("{} has no weight at {}; {} was expected", label(), path, to_text(type)));
  if (!stored->unreadable.empty()) return bad(label(), fmt::format("{} cannot be read: {}", path, stored->unreadable));
  const auto convertible = [](DType dtype) { return dtype != DType::kBFloat16 && dtype != DType::kBool; };
  const bool same = stored->type.dtype == type.dtype;
  if (stored->type.shape != type.shape || (!same && !(convertible(type.dtype) && convertible(stored->type.dtype))))
    return fail(ErrorCode::kWeightShape, fmt::format("{}: the weight at {} is {}, {} was expected", label(), path,
                                                     to_text(stored->type), to_text(type)));
  const Hdf5Lock lock;
  const Hdf5Id dataset(H5Dopen2(impl_->file.get(), stored->path.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset) return bad(label(), fmt::format("HDF5 cannot open {}: {}", path, hdf5_reason()));
  // bfloat16 and bool come in more than one guise; without conversion each is its own.
  const Hdf5Id memory = convertible(type.dtype) ? hdf5_type(type.dtype) : Hdf5Id(H5Dget_type(dataset.get()), H5Tclose);
  const Hdf5Id transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  H5Pset_buffer(transfer.get(), static_cast<size_t>(kStreamBuffer), nullptr, nullptr);
  if (H5Dread(dataset.get(), memory.get(), H5S_ALL, H5S_ALL, transfer.get(), destination) < 0)
    return bad(label(), fmt::format("HDF5 cannot read {}: {}", path, hdf5_reason()));
  return {};
}

}  // namespace plimsoll
