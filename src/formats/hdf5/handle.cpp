#include "formats/hdf5/handle.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace plimsoll {
namespace {

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t take_first(unsigned n, const H5E_error2_t* error, void* reason) {
  if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(reason) = error->desc;
  return 0;
}

struct FloatFormat {
  size_t sign, exponent, exponent_bits, mantissa, mantissa_bits, bias;
  bool operator==(const FloatFormat&) const = default;
};
constexpr FloatFormat kHalf = {15, 10, 5, 0, 10, 15};
constexpr FloatFormat kBrain = {15, 7, 8, 0, 7, 127};

DType integer(bool is_signed, size_t size) {
  switch (size) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    default:
      return is_signed ? DType::kInt64 : DType::kUInt64;
  }
}

std::optional<DType> floating(hid_t type, size_t size) {
  if (size == 4) return DType::kFloat32;
  if (size == 8) return DType::kFloat64;
  if (size != 2) return std::nullopt;
  FloatFormat format{};
  H5Tget_fields(type, &format.sign, &format.exponent, &format.exponent_bits, &format.mantissa, &format.mantissa_bits);
  format.bias = H5Tget_ebias(type);
  if (format == kHalf) return DType::kFloat16;
  if (format == kBrain) return DType::kBFloat16;
  return std::nullopt;
}

// Keras marks bfloat16, which HDF5 does not know, by an attribute of the dataset.
bool marked_bfloat16(hid_t dataset) {
  if (H5Aexists(dataset, "dtype") <= 0) return false;
  const Hdf5Id attribute(H5Aopen(dataset, "dtype", H5P_DEFAULT), H5Aclose);
  const Hdf5Id type(H5Aget_type(attribute.get()), H5Tclose);
  const Hdf5Id space(H5Aget_space(attribute.get()), H5Sclose);
  if (H5Tis_variable_str(type.get()) <= 0 || H5Sget_simple_extent_npoints(space.get()) != 1) return false;
  char* text = nullptr;
  if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return false;
  const bool is_bfloat16 = std::string_view(text) == "bfloat16";
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, &text);
  return is_bfloat16;
}

bool stored_elsewhere(hid_t dataset) {
  const Hdf5Id properties(H5Dget_create_plist(dataset), H5Pclose);
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if (layout == H5D_CONTIGUOUS) return H5Pget_external_count(properties.get()) > 0;
  return layout != H5D_CHUNKED && layout != H5D_COMPACT;  // virtual datasets name other files
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(hdf5_mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // of this thread, where HDF5 knows threads
}

std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  return reason;
}

std::exception_ptr& hdf5_caught() {
  static std::exception_ptr caught;
  return caught;
}

void hdf5_rethrow() {
  if (hdf5_caught()) std::rethrow_exception(std::exchange(hdf5_caught(), nullptr));
}

Hdf5Id hdf5_access() {
  Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  H5Pset_sieve_buf_size(access.get(), 4 * kKiB);
  H5Pset_cache(access.get(), 0, 101, 64 * kKiB, 1.0);
  H5AC_cache_config_t cache{};
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  if (H5Pget_mdc_config(access.get(), &cache) >= 0) {
    cache.set_initial_size = true;
    cache.initial_size = 128 * kKiB;
    cache.min_size = 64 * kKiB;
    cache.max_size = 256 * kKiB;
    H5Pset_mdc_config(access.get(), &cache);
  }
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access.get(), false, true);  // our files are private; network file systems refuse locks
#endif
  return access;
}

Hdf5Id hdf5_type(DType dtype) {
  static const std::array<hid_t, 13> kNative = {H5T_NATIVE_FLOAT,
                                                H5T_NATIVE_DOUBLE,
                                                -1,
                                                -1,
                                                H5T_NATIVE_INT8,
                                                H5T_NATIVE_INT16,
                                                H5T_NATIVE_INT32,
                                                H5T_NATIVE_INT64,
                                                H5T_NATIVE_UINT8,
                                                H5T_NATIVE_UINT16,
                                                H5T_NATIVE_UINT32,
                                                H5T_NATIVE_UINT64,
                                                -1};
  if (dtype == DType::kBFloat16) return {H5Tcreate(H5T_OPAQUE, 2), H5Tclose};
  if (dtype == DType::kFloat16) {
    Hdf5Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    H5Tset_fields(type.get(), kHalf.sign, kHalf.exponent, kHalf.exponent_bits, kHalf.mantissa, kHalf.mantissa_bits);
    H5Tset_size(type.get(), 2);
    H5Tset_ebias(type.get(), kHalf.bias);
    return type;
  }
  if (dtype == DType::kBool) {
    Hdf5Id type(H5Tenum_create(H5T_NATIVE_INT8), H5Tclose);
    const int8_t no = 0, yes = 1;
    H5Tenum_insert(type.get(), "FALSE", &no);
    H5Tenum_insert(type.get(), "TRUE", &yes);
    return type;
  }
  return {H5Tcopy(kNative[static_cast<size_t>(dtype)]), H5Tclose};
}

Hdf5Element hdf5_element(hid_t dataset) {
  if (stored_elsewhere(dataset)) return {std::nullopt, "its elements lie in another file"};
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
  const size_t size = H5Tget_size(type.get());
  switch (H5Tget_class(type.get())) {
    case H5T_FLOAT:
      if (const auto dtype = floating(type.get(), size)) return {dtype, ""};
      return {std::nullopt, fmt::format("floating-point elements of {} bytes", size)};
    case H5T_INTEGER:
      if (size > 8) break;
      return {integer(H5Tget_sign(type.get()) == H5T_SGN_2, size), ""};
    case H5T_ENUM:
      if (size == 1 && H5Tget_nmembers(type.get()) == 2) return {DType::kBool, ""};
      break;
    case H5T_OPAQUE:
      if (size == 2 && marked_bfloat16(dataset)) return {DType::kBFloat16, ""};
      break;
    case H5T_STRING:
      return {std::nullopt, "text"};
    default:
      break;
  }
  return {std::nullopt, fmt::format("elements of {} bytes of no type we know", size)};
}

}  // namespace plimsoll
