#include "backends/cpu/machine.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "backends/cpu/onednn/primitive.h"
#include "backends/cpu/simd/simd.h"
#include "device/host_room.h"

namespace plimsoll::engine::cpu {

namespace {

// With this value, convolutions reach 0.97 of the computed peak on the cores measured.
constexpr double kCyclesPerSecond = 4.2e9;
constexpr double kThreadBandwidth = 16.0e9;   // measured: one core streams 18 to 21 GB/s, two cores 33
constexpr double kSocketBandwidth = 120.0e9;  // more threads do not help beyond this
constexpr double kLaunchSeconds = 4.0e-6;     // start of an OpenMP region, or of one oneDNN call

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(':');
      return colon == std::string::npos ? line : line.substr(std::min(line.size(), colon + 2));
    }
  }
  return "CPU";
}

}  // namespace

double Machine::seconds(double flops, double efficiency, double bytes) const {
  return kLaunchSeconds + std::max(flops / (peak_flops * efficiency), bytes / bytes_per_second);
}

Machine make_machine(int threads) {
  Machine machine;
  machine.threads = std::max(1, threads);
  // Disables the cache: each primitive kept in it would occupy 38 to 58 KiB after its last use.
  dnnl::set_primitive_cache_capacity(0);
  machine.engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  machine.stream = dnnl::stream(machine.engine);
  machine.primitives = std::make_shared<PrimitiveCache>();
  // AVX2 cores have two 8-wide FMA units. The AVX-512 cores measured so far have one 16-wide unit, or the same
  // throughput.
  const double flops_per_cycle = std::string(simd().name) == "baseline" ? 8 : 32;
  machine.peak_flops = kCyclesPerSecond * flops_per_cycle * machine.threads;
  machine.bytes_per_second = std::min(kSocketBandwidth, kThreadBandwidth * machine.threads);
  return machine;
}

DeviceInfo describe(const Machine& machine) {
  DeviceInfo info;
  info.name = fmt::format("{}, {} thread{}", processor_name(), machine.threads, machine.threads == 1 ? "" : "s");
  info.kind = "cpu";
  info.memory_bytes = host_memory_bytes();
  info.free_bytes = free_host_bytes();
  info.threads = machine.threads;
  info.bytes_per_second = machine.bytes_per_second;
  info.flops_per_second = info.half_flops_per_second = machine.peak_flops;
  const dnnl_version_t* version = dnnl_version();
  info.library = fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  return info;
}

void use_threads(const Machine& machine) {
  if (omp_get_max_threads() != machine.threads) omp_set_num_threads(machine.threads);
}

}  // namespace plimsoll::engine::cpu
