#include "backends/cuda/driver/mapped_range.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/room.h"

namespace plimsoll::engine::cuda {
namespace {

// Functions of the driver. Its library is not linked, so they are looked up through the runtime.
struct VirtualMemory {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve_addresses = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

Error no_virtual_memory(const std::string& fact) {
  return Error{ErrorCode::kLibraryMissing,
               "--memory-growth: this GPU's driver does not support virtual memory management",
               {fact},
               {"omit --memory-growth and unset TF_FORCE_GPU_ALLOW_GROWTH"}};
}

Result<VirtualMemory> load_virtual_memory() {
  constexpr unsigned kSince = 10020;  // CUDA 10.2
  VirtualMemory table;
  const auto take = [](auto& slot, const char* name) -> Status {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
    PLIMSOLL_CUDA(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &answer));
    if (answer != cudaDriverEntryPointSuccess || found == nullptr)
      return fail(no_virtual_memory(fmt::format("the driver has no {}", name)));
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(found);
    return {};
  };
  PLIMSOLL_TRY(take(table.granularity, "cuMemGetAllocationGranularity"));
  PLIMSOLL_TRY(take(table.reserve_addresses, "cuMemAddressReserve"));
  PLIMSOLL_TRY(take(table.free_addresses, "cuMemAddressFree"));
  PLIMSOLL_TRY(take(table.create, "cuMemCreate"));
  PLIMSOLL_TRY(take(table.release, "cuMemRelease"));
  PLIMSOLL_TRY(take(table.map, "cuMemMap"));
  PLIMSOLL_TRY(take(table.unmap, "cuMemUnmap"));
  PLIMSOLL_TRY(take(table.set_access, "cuMemSetAccess"));
  return table;
}

const Result<VirtualMemory>& virtual_memory() {
  static const Result<VirtualMemory> table = load_virtual_memory();
  return table;
}

// The driver's error codes have the same values as the runtime's.
Status check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return {};
  if (code == CUDA_ERROR_NOT_SUPPORTED) return fail(no_virtual_memory(what));
  return fail(cuda_error(static_cast<cudaError_t>(code), what));
}

CUmemLocation location_of(const Context& context) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = context.ordinal;
  return location;
}

CUmemAllocationProp properties_of(const Context& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(context);
  return properties;
}

}  // namespace

Result<std::unique_ptr<MappedRange>> MappedRange::reserve(const Context& context, Bytes bytes) {
  if (!virtual_memory()) return tl::make_unexpected(virtual_memory().error());
  const VirtualMemory& vm = *virtual_memory();
  const CUmemAllocationProp properties = properties_of(context);
  size_t granularity = 0;
  PLIMSOLL_TRY(check(vm.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                     "cuMemGetAllocationGranularity"));
  const Bytes whole = align_up(bytes, static_cast<Bytes>(granularity));
  CUdeviceptr base = 0;
  PLIMSOLL_TRY(check(vm.reserve_addresses(&base, static_cast<size_t>(whole), 0, 0, 0), "cuMemAddressReserve"));
  return std::unique_ptr<MappedRange>(new MappedRange(context, base, whole, static_cast<Bytes>(granularity)));
}

MappedRange::~MappedRange() {
  shrink(0);
  (void)virtual_memory()->free_addresses(base_, static_cast<size_t>(bytes_));
}

Status MappedRange::grow(Bytes bytes) {
  const Bytes end = align_up(bytes, granularity_);
  if (end <= mapped_) return {};
  const Bytes before = mapped_;
  Status status = map_pieces(end);
  if (status) {
    CUmemAccessDesc access{};
    access.location = location_of(context_);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = check(virtual_memory()->set_access(base_ + static_cast<CUdeviceptr>(before),
                                                static_cast<size_t>(end - before), &access, 1),
                   "cuMemSetAccess");
  }
  if (status) return {};
  shrink(before);
  if (status.error().code != ErrorCode::kOutOfMemory) return status;
  return fail(no_room(context_, end - before,
                      before == 0 ? "for the arena" : fmt::format("to add to the arena's {}", format_bytes(before))));
}

Status MappedRange::map_pieces(Bytes end) {
  const VirtualMemory& vm = *virtual_memory();
  const CUmemAllocationProp properties = properties_of(context_);
  const Bytes largest = align_up(kLargestPiece, granularity_);
  while (mapped_ < end) {
    Piece piece{0, std::min(largest, end - mapped_)};
    const auto size = static_cast<size_t>(piece.bytes);
    PLIMSOLL_TRY(check(vm.create(&piece.handle, size, &properties, 0), "cuMemCreate"));
    if (const CUresult code = vm.map(base_ + static_cast<CUdeviceptr>(mapped_), size, 0, piece.handle, 0);
        code != CUDA_SUCCESS) {
      vm.release(piece.handle);
      return check(code, "cuMemMap");
    }
    pieces_.push_back(piece);
    mapped_ += piece.bytes;
  }
  return {};
}

void MappedRange::shrink(Bytes bytes) {
  const VirtualMemory& vm = *virtual_memory();
  while (!pieces_.empty() && mapped_ - pieces_.back().bytes >= bytes) {
    mapped_ -= pieces_.back().bytes;
    (void)vm.unmap(base_ + static_cast<CUdeviceptr>(mapped_), static_cast<size_t>(pieces_.back().bytes));
    (void)vm.release(pieces_.back().handle);
    pieces_.pop_back();
  }
}

}  // namespace plimsoll::engine::cuda
