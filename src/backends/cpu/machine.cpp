#include "backends/cpu/machine.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "backends/cpu/onednn/primitive.h"
#include "backends/cpu/parallel.h"
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

namespace {

// The best rate of runs of `work`, which returns its amount of work, in about `seconds`.
template <typename Work>
double best_rate(double seconds, const Work& work) {
  using Clock = std::chrono::steady_clock;
  double best = 0, spent = 0;
  for (int run = 0; run < 3 || spent < seconds; ++run) {
    const auto start = Clock::now();
    const double amount = work();
    const double took = std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
    spent += took;
    if (run > 0) best = std::max(best, amount / took);  // the first run wakes the threads
  }
  return best;
}

double measure_flops(int threads) {
  constexpr int64_t kRounds = 200000;  // about a millisecond
  std::vector<float> results(static_cast<size_t>(threads));
  std::vector<double> done(results.size());
  return best_rate(0.05, [&] {
    parallel_items(threads, threads, [&](int64_t item, int) {
      const auto i = static_cast<size_t>(item);
      done[i] = simd().multiply_adds(kRounds, &results[i]);
    });
    double sum = 0;
    for (const double flops : done) sum += flops;
    return sum;
  });
}

// Returns 0 if there is no room for the buffers.
double measure_copies(int threads) {
  constexpr int64_t kBytes = 96 * kMiB, kPiece = 2 * kMiB;  // larger than most caches
  if (free_host_bytes() < 4 * kBytes) return 0;
  const std::unique_ptr<char[]> from(new (std::nothrow) char[kBytes]), to(new (std::nothrow) char[kBytes]);
  if (!from || !to) return 0;
  std::memset(from.get(), 1, kBytes);
  std::memset(to.get(), 2, kBytes);
  return best_rate(0.05, [&] {
    parallel_items(threads, kBytes / kPiece, [&](int64_t piece, int) {
      std::memcpy(to.get() + piece * kPiece, from.get() + piece * kPiece, kPiece);
    });
    return 2.0 * kBytes;
  });
}

}  // namespace

MachineRates measure_rates(const Machine& machine) {
  use_threads(machine);
  return {measure_flops(machine.threads), measure_copies(machine.threads)};
}

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
