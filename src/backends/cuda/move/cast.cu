// cast between any two dtypes, eight elements per thread. Casts to integers truncate and clamp to the range; a NaN
// becomes 0. Casts between 64-bit integers keep the bits.
#include <limits>
#include <type_traits>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/move/launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256, kEach = 8;

struct Boolean {
  uint8_t bits;
};

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;
template <typename T>
inline constexpr bool kIsWide = std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>;

// Widens a value to a fast type that represents it exactly: float32 if it fits; integers stay as they are.
template <typename T>
__device__ auto widened(T x) {
  if constexpr (kIsHalf<T>)
    return to_float(x);
  else if constexpr (std::is_same_v<T, Boolean>)
    return static_cast<int32_t>(x.bits != 0);
  else
    return x;
}

template <typename T>
inline constexpr T kLeastOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kMostOf = std::numeric_limits<T>::max();

template <typename To, typename From>
__device__ To to_integer(From x) {
  constexpr To kLeast = kLeastOf<To>, kMost = kMostOf<To>;
  if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_signed_v<From>) {
      if (x < 0 && (!std::is_signed_v<To> || static_cast<int64_t>(x) < static_cast<int64_t>(kLeast))) return kLeast;
      if (x > 0 && static_cast<uint64_t>(x) > static_cast<uint64_t>(kMost)) return kMost;
    } else {
      if (static_cast<uint64_t>(x) > static_cast<uint64_t>(kMost)) return kMost;
    }
    return static_cast<To>(x);
  } else {
    // The largest integer may not be representable in floating point, so compare with the power of two above it.
    constexpr auto kAbove = static_cast<From>(kMost / 2 + 1) * From(2);
    if (isnan(x)) return 0;
    if (x >= kAbove) return kMost;
    if (x <= static_cast<From>(kLeast)) return kLeast;
    return static_cast<To>(x);
  }
}

template <typename To, typename From>
__device__ To convert(From value) {
  const auto x = widened(value);
  using Number = std::decay_t<decltype(x)>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, Boolean>) {
    return Boolean{static_cast<uint8_t>(x != Number(0))};
  } else if constexpr (kIsWide<To> && kIsWide<From>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    return to_integer<To>(x);
  } else if constexpr (std::is_same_v<To, double>) {
    return static_cast<double>(x);
  } else if constexpr (std::is_same_v<To, __half> && sizeof(Number) >= 4 && !std::is_same_v<Number, float>) {
    return __double2half(static_cast<double>(x));  // going through float32 would round twice
  } else if constexpr (kIsHalf<To>) {
    return from_float<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) cast(int64_t elements, const From* x, To* y) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (at + kEach <= elements) {
    const auto from = load_pack<kEach>(x + at);
    Pack<To, kEach> to;
#pragma unroll
    for (int k = 0; k < kEach; ++k) to.v[k] = convert<To>(from.v[k]);
    store_pack(y + at, to);
    return;
  }
  for (int64_t i = at; i < elements; ++i) y[i] = convert<To>(x[i]);
}

// Calls f.operator()<T>() with the C++ type of `number`.
template <typename F>
void with_number(Number number, F f) {
  switch (number) {
    case Number::kF32:
      return f.template operator()<float>();
    case Number::kF64:
      return f.template operator()<double>();
    case Number::kF16:
      return f.template operator()<__half>();
    case Number::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case Number::kI8:
      return f.template operator()<int8_t>();
    case Number::kI16:
      return f.template operator()<int16_t>();
    case Number::kI32:
      return f.template operator()<int32_t>();
    case Number::kI64:
      return f.template operator()<int64_t>();
    case Number::kU8:
      return f.template operator()<uint8_t>();
    case Number::kU16:
      return f.template operator()<uint16_t>();
    case Number::kU32:
      return f.template operator()<uint32_t>();
    case Number::kU64:
      return f.template operator()<uint64_t>();
    case Number::kBool:
      return f.template operator()<Boolean>();
  }
}

}  // namespace

void launch_cast(Number from, Number to, int64_t elements, const void* x, void* y, cudaStream_t stream) {
  with_number(from, [&]<typename From>() {
    with_number(to, [&]<typename To>() {
      const unsigned blocks = blocks_for(elements, kThreads * kEach);
      cast<From, To><<<blocks, kThreads, 0, stream>>>(elements, static_cast<const From*>(x), static_cast<To*>(y));
    });
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
