// What the kernels of this backend share: threads, oneDNN's engine, and the constants of the cost model.
#pragma once

#include <dnnl.hpp>

#include "device/device.h"

namespace plimsoll::engine::cpu {

struct Machine {
  int threads = 1;
  double peak_flops = 0;        // float32, all threads, of the instruction set in use
  double bytes_per_second = 0;  // streaming from memory, all threads
  dnnl::engine engine;
  dnnl::stream stream;

  // A roofline: whichever of arithmetic (at a kernel's share of the peak) and traffic takes longer, and the start of a
  // parallel region. Deterministic: nothing is timed.
  double seconds(double flops, double efficiency, double bytes) const;
};

Machine make_machine(int threads);
DeviceInfo describe(const Machine& machine);

// OpenMP's number of threads belongs to the calling thread; oneDNN reads it when a descriptor is made and when it runs.
void use_threads(const Machine& machine);

}  // namespace plimsoll::engine::cpu
