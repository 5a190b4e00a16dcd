// HDF5 for the rest of this folder: owned identifiers, one lock, errors as text instead of on stderr, element types.
#pragma once

#define H5_USE_18_API  // the same calls in every HDF5 from 1.8 on, whatever a distribution maps by default
#include <hdf5.h>

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace plimsoll {

// Held by every public call: HDF5 is built without thread safety more often than not.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::mutex> lock_;
};

class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id(hid_t id, Close closer) : id_(id), close_(closer) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Id() { close(); }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  bool close() {  // false when HDF5 could not; what it still had to write is then lost
    const hid_t id = std::exchange(id_, -1);
    return id < 0 || close_(id) >= 0;
  }

 private:
  hid_t id_;
  Close close_;
};

// The innermost reason of the last failed call: "read failed (errno = 5, Input/output error)".
std::string hdf5_reason();

// What HDF5 calls back: true goes on. An exception must not cross its C code; it waits, until HDF5 has returned with an
// error, for hdf5_rethrow() under the same lock.
std::exception_ptr& hdf5_caught();
void hdf5_rethrow();

template <typename F>
herr_t hdf5_callback(const F& f) noexcept {
  try {
    return f() ? 0 : -1;
  } catch (...) {
    hdf5_caught() = std::current_exception();
    return -1;
  }
}

// How we open files. Small caches: Keras files hold many small datasets, each read or written once.
Hdf5Id hdf5_access();

// The element type in memory, which is also how we write it. bfloat16 is opaque and bool an enumeration, as h5py does
// it.
Hdf5Id hdf5_type(DType dtype);
// The element type of an open dataset, or why there is none of ours.
struct Hdf5Element {
  std::optional<DType> dtype;
  std::string unreadable;
};
Hdf5Element hdf5_element(hid_t dataset);

}  // namespace plimsoll
