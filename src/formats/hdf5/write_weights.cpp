#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "formats/hdf5/impl.h"

namespace plimsoll {
namespace {

constexpr std::string_view kOptimizer = "optimizer/";

bool copy_attribute(hid_t from, hid_t to, const char* name) {
  const Hdf5Id attribute(H5Aopen(from, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Id type(H5Aget_type(attribute.get()), H5Tclose);
  const Hdf5Id space(H5Aget_space(attribute.get()), H5Sclose);
  const Hdf5Id copy(H5Acreate2(to, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!attribute || !copy) return false;
  const auto points = H5Sget_simple_extent_npoints(space.get());
  if (points <= 0) return true;
  std::vector<std::byte> value(H5Tget_size(type.get()) * static_cast<size_t>(points));
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return false;
  const bool written = H5Awrite(copy.get(), type.get(), value.data()) >= 0;
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, value.data());  // strings are pointers into HDF5's memory
  return written;
}

herr_t copy_one_attribute(hid_t from, const char* name, const H5A_info_t*, void* to) {
  return hdf5_callback([&] { return copy_attribute(from, *static_cast<hid_t*>(to), name); });
}

bool copy_attributes(hid_t from, hid_t to) {
  return H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, copy_one_attribute, &to) >= 0;
}

bool mark_bfloat16(hid_t dataset) {
  if (H5Aexists(dataset, "dtype") > 0) return true;
  const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id attribute(H5Acreate2(dataset, "dtype", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* text = "bfloat16";
  return attribute && H5Awrite(attribute.get(), type.get(), &text) >= 0;
}

class Writer {
 public:
  Writer(hid_t file, const Hdf5Region& region, std::span<const WeightEntry> entries)
      : file_(file), region_(region), entries_(entries), written_(entries.size(), false) {
    for (size_t i = 0; i < entries.size(); ++i) {
      by_path_.emplace(entries[i].path, i);
      if (entries[i].path.starts_with(kOptimizer)) replaces_optimizer_ = true;
    }
    H5Pset_create_intermediate_group(links_.get(), 1);
    H5Pset_obj_track_times(datasets_.get(), 0);  // as h5py does: the same weights make the same file
  }

  bool copy_source(hid_t source) { return H5Ovisit(source, H5_INDEX_NAME, H5_ITER_NATIVE, copy_object, this) >= 0; }

  bool write_rest() {
    for (size_t i = 0; i < entries_.size(); ++i)
      if (!written_[i] && !write(i, -1)) return false;
    // Keras 3.0.0 opens "vars" of the model itself without asking whether it is there.
    if (H5Lexists(file_, "vars", H5P_DEFAULT) > 0) return true;
    return bool(Hdf5Id(H5Gcreate2(file_, "vars", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose));
  }

 private:
  static herr_t copy_object(hid_t root, const char* name, const H5O_info_t* info, void* self) {
    auto& writer = *static_cast<Writer*>(self);
    return hdf5_callback([&] { return writer.copy(root, name, info->type) && !writer.region_.error; });
  }

  bool copy(hid_t root, const std::string& name, H5O_type_t kind) {
    if (kind == H5O_TYPE_GROUP) {
      const Hdf5Id from(H5Gopen2(root, name.c_str(), H5P_DEFAULT), H5Gclose);
      const Hdf5Id to(name == "." ? H5Gopen2(file_, "/", H5P_DEFAULT)
                                  : H5Gcreate2(file_, name.c_str(), links_.get(), H5P_DEFAULT, H5P_DEFAULT),
                      H5Gclose);
      return from && to && copy_attributes(from.get(), to.get());
    }
    const auto entry = by_path_.find(name);
    if (entry != by_path_.end()) {
      const Hdf5Id from(H5Dopen2(root, name.c_str(), H5P_DEFAULT), H5Dclose);
      return from && write(entry->second, from.get());
    }
    if (replaces_optimizer_ && std::string_view(name).starts_with(kOptimizer)) return true;
    return H5Ocopy(root, name.c_str(), file_, name.c_str(), H5P_DEFAULT, links_.get()) >= 0;
  }

  // Straight from the caller's memory; `from`, when there is one, gives its attributes.
  bool write(size_t index, hid_t from) {
    const auto& entry = entries_[index];
    written_[index] = true;
    const auto& dims = entry.type.shape.dims;
    const std::vector<hsize_t> extent(dims.begin(), dims.end());
    const Hdf5Id space(
        dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), extent.data(), nullptr),
        H5Sclose);
    const Hdf5Id type = hdf5_type(entry.type.dtype);
    const Hdf5Id dataset(
        H5Dcreate2(file_, entry.path.c_str(), type.get(), space.get(), links_.get(), datasets_.get(), H5P_DEFAULT),
        H5Dclose);
    if (!dataset) return false;
    if (from >= 0 && hdf5_element(from).dtype == entry.type.dtype && !copy_attributes(from, dataset.get()))
      return false;
    if (entry.type.dtype == DType::kBFloat16 && !mark_bfloat16(dataset.get())) return false;
    return H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, entry.data) >= 0 && !region_.error;
  }

  hid_t file_;
  const Hdf5Region& region_;
  std::span<const WeightEntry> entries_;
  std::vector<bool> written_;
  std::unordered_map<std::string, size_t> by_path_;
  bool replaces_optimizer_ = false;
  Hdf5Id links_{H5Pcreate(H5P_LINK_CREATE), H5Pclose}, datasets_{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};
};

}  // namespace

int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source) {
  int64_t bytes = 64 * kKiB;  // elements, and two KiB of HDF5's own for every dataset with its groups
  bool replaces_optimizer = false;
  std::unordered_set<std::string_view> replaced;
  for (const auto& entry : entries) {
    bytes += entry.type.bytes() + 2 * kKiB;
    replaced.insert(entry.path);
    replaces_optimizer |= entry.path.starts_with(kOptimizer);
  }
  if (source == nullptr) return bytes;
  for (const auto& dataset : source->datasets())
    if (!replaced.contains(dataset.path) && !(replaces_optimizer && dataset.path.starts_with(kOptimizer)))
      bytes += dataset.type.bytes() + 2 * kKiB;
  return bytes;
}

Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source) {
  const Hdf5Lock lock;
  Hdf5Region region{nullptr, &file, file.position(), 0, {}};
  const auto failed = [&](const std::string& reason) -> Status {
    if (region.error) return fail(*region.error);
    if (source != nullptr && source->impl_->region.error) return fail(*source->impl_->region.error);
    hdf5_rethrow();
    return fail(ErrorCode::kBadWeightsFile,
                fmt::format("HDF5 could not write the weights of {}: {}", file.target(), reason));
  };
  const Hdf5Id access = hdf5_access();
  hdf5_use_region(access, region);
  Hdf5Id out(H5Fcreate(file.target().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!out) return failed(hdf5_reason());
  {
    Writer writer(out.get(), region, entries);
    if (source != nullptr && !writer.copy_source(source->impl_->file.get())) return failed(hdf5_reason());
    if (!writer.write_rest()) return failed(hdf5_reason());
  }
  if (!out.close() || region.error) return failed(hdf5_reason());
  H5garbage_collect();
  return file.skip_to(region.offset + region.bytes);
}

}  // namespace plimsoll
