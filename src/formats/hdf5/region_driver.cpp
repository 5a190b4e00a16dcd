#include "formats/hdf5/region_driver.h"

#if H5_VERSION_GE(1, 14, 0)
#include <H5FDdevelop.h>
#endif

#include <algorithm>

namespace plimsoll {
namespace {

// What HDF5 copies into its property list and hands back to open().
struct RegionAccess {
  Hdf5Region* region;
};

struct RegionFile : H5FD_t {
  Hdf5Region* region;
  haddr_t end_of_addresses;
};

RegionFile* self(H5FD_t* file) {
  return static_cast<RegionFile*>(file);
}
const RegionFile* self(const H5FD_t* file) {
  return static_cast<const RegionFile*>(file);
}

H5FD_t* open_region(const char*, unsigned flags, hid_t access, haddr_t) {
  const auto* info = static_cast<const RegionAccess*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  RegionFile* file = nullptr;
  const auto make = [&] {
    file = new RegionFile{};
    return true;
  };
  if (hdf5_callback(make) < 0) return nullptr;
  file->region = info->region;
  if ((flags & H5F_ACC_TRUNC) != 0) file->region->bytes = 0;
  return file;
}

herr_t close_region(H5FD_t* file) {
  delete self(file);
  return 0;
}

herr_t query_region(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_end_of_addresses(const H5FD_t* file, H5FD_mem_t) {
  return self(file)->end_of_addresses;
}

herr_t set_end_of_addresses(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  self(file)->end_of_addresses = address;
  return 0;
}

haddr_t get_end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(self(file)->region->bytes);
}

// Exceptions must not cross the C code of HDF5.
herr_t read_region(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) noexcept {
  auto& region = *self(file)->region;
  const std::span out(static_cast<std::byte*>(buffer), size);
  const auto begin = static_cast<int64_t>(address);
  const auto there = static_cast<size_t>(std::clamp<int64_t>(region.bytes - begin, 0, static_cast<int64_t>(size)));
  const auto status = region.input != nullptr ? region.input->pread_exact(region.offset + begin, out.first(there))
                                              : region.output->read_at(region.offset + begin, out.first(there));
  if (!status) {
    if (!region.error) region.error = status.error();
    return -1;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(there), out.end(), std::byte{0});  // as HDF5's own drivers do
  return 0;
}

herr_t write_region(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, const void* buffer) noexcept {
  auto& region = *self(file)->region;
  const auto begin = static_cast<int64_t>(address);
  region.bytes = std::max(region.bytes, begin + static_cast<int64_t>(size));
  if (region.error) return 0;
  const auto status = region.output->write_at(region.offset + begin, {static_cast<const std::byte*>(buffer), size});
  if (!status) region.error = status.error();
  return 0;
}

herr_t truncate_region(H5FD_t* file, hid_t, hbool_t) {
  auto& region = *self(file)->region;
  if (region.output != nullptr) region.bytes = static_cast<int64_t>(self(file)->end_of_addresses);
  return 0;
}

H5FD_class_t make_class() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(600);  // from 512 on they are free for use inside a program
#endif
  driver.name = "plimsoll_region";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(RegionAccess);
  driver.open = open_region;
  driver.close = close_region;
  driver.query = query_region;
  driver.get_eoa = get_end_of_addresses;
  driver.set_eoa = set_end_of_addresses;
  driver.get_eof = get_end_of_file;
  driver.read = read_region;
  driver.write = write_region;
  driver.truncate = truncate_region;
  const H5FD_mem_t lists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(lists), std::end(lists), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

void hdf5_use_region(const Hdf5Id& access, Hdf5Region& region) {
  static const H5FD_class_t driver = make_class();
  static const hid_t id = H5FDregister(&driver);
  const RegionAccess info{&region};
  H5Pset_driver(access.get(), id, &info);
}

}  // namespace plimsoll
