// State shared by all CPU kernels: the number of threads, oneDNN's engine, and the constants of the cost model.
#pragma once

#include <dnnl.hpp>
#include <memory>

#include "device/device.h"

namespace plimsoll::engine::cpu {

class PrimitiveCache;

struct Machine {
  int threads = 1;
  // Per thread: the float32 tensors of a piece of the batch (half/) should fit the caches, but occupy all threads.
  Bytes piece_bytes = kMiB;
  double peak_flops = 0;        // float32 peak of all threads, for the instruction set in use
  double bytes_per_second = 0;  // streaming from memory, all threads
  dnnl::engine engine;
  dnnl::stream stream;
  std::shared_ptr<PrimitiveCache> primitives;

  // Roofline estimate: the longer of arithmetic (at `efficiency` of the peak) and memory traffic, plus the time to
  // start a parallel region. Deterministic, because it uses no timing.
  double seconds(double flops, double efficiency, double bytes) const;
};

Machine make_machine(int threads);
DeviceInfo describe(const Machine& machine);

// Measures what all threads reach together: multiply-adds on registers, and a copy of a large buffer. Takes the best of
// several short runs, because other programs can only slow them down.
MachineRates measure_rates(const Machine& machine);

// Sets OpenMP's number of threads. The setting is per calling thread, and oneDNN reads it both when it creates a
// descriptor and when it runs.
void use_threads(const Machine& machine);

}  // namespace plimsoll::engine::cpu
