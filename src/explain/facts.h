// What a log says, without a judgement. The readers fill it in; decide.h concludes from it. Every list is bounded, so a
// hostile log of any size needs little memory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "explain/tape.h"

namespace plimsoll::engine::explain {

inline constexpr size_t kMostFacts = 256;  // of each kind; a log that repeats itself says no more

template <typename Fact>
Fact* add_fact(std::vector<Fact>& list, Fact fact) {
  if (list.size() >= kMostFacts) return nullptr;
  list.push_back(std::move(fact));
  return &list.back();
}

using Size = std::optional<Bytes>;

// Chunks by their size.
struct Chunks {
  static constexpr size_t kMostSizes = 4096;  // the smallest sizes are dropped beyond that
  std::map<Bytes, int64_t> count;
  void add(Bytes size, int64_t how_many);
};

// An allocation that TensorFlow's best-fit allocator refused, and the dump that follows it.
struct PoolFailure {
  Sighting seen;
  std::string allocator, op;
  bool harmless = false;  // "the caller indicates that this is not a failure"
  Size requested;
  bool requested_exact = false;
  Size limit, in_use, max_in_use, region;  // region: what the pool took from the device
  std::optional<Sighting> stats;           // the line of "Limit:"
  Chunks listed, totals;                   // "InUse at" lines, and the summary "9 Chunks of size"
  Bytes free_total = 0, free_largest = 0;
  int64_t free_count = 0;
};

// "OOM when allocating tensor with shape[2048,436631] and type float"
struct TensorFailure {
  Sighting seen;
  std::vector<int64_t> dims;
  std::string dtype, device, op;
  Size bytes;
};

struct SizedFact {  // a refused allocation or the memory of a device
  Sighting seen;
  Bytes bytes = 0;
};

struct NamedFact {
  Sighting seen;
  std::string name;
};

struct Process {
  std::string name;  // "process 1234"
  Bytes bytes = 0;
  int64_t line = 0;
};

struct TorchFailure {
  Sighting seen;
  std::string device;  // "GPU 0", "MPS"
  Size tried, total, free, allocated, reserved, unallocated, in_process, allowed, other;
  std::vector<Process> processes;
};

struct XlaFailure {
  Sighting seen;
  Size requested, parameters, outputs, temporaries, total, used, capacity, exceeded;
  bool tpu = false, recomputes = false;                // labels with ".remat"
  std::vector<std::pair<std::string, Bytes>> buffers;  // the largest: shape, bytes
  std::optional<Sighting> totals;
};

// The kernel's out-of-memory killer.
struct KernelKill {
  Sighting seen;
  std::string task, constraint;
  bool cgroup = false;
  Size total_vm, anon, file, shmem;
  std::optional<Sighting> killed;
};

struct ArrayFailure {  // numpy
  Sighting seen;
  Size bytes;
  std::vector<int64_t> dims;
  std::string dtype;
};

struct Facts {
  std::vector<PoolFailure> pools;
  std::vector<TensorFailure> tensors;
  std::vector<SizedFact> device_refusals;  // "failed to allocate 8.41G from device"
  std::vector<SizedFact> pinned_refusals;
  std::vector<SizedFact> devices;        // "Created device ... with 67 MB memory"
  std::vector<SizedFact> device_totals;  // "totalMemory: 7.66GiB"
  std::vector<NamedFact> disguises;      // cuDNN, cuBLAS, Dst tensor
  std::vector<NamedFact> cuda_oom;       // an error code of CUDA alone
  std::vector<TorchFailure> torch;
  std::vector<SizedFact> torch_host;  // DefaultCPUAllocator
  std::vector<XlaFailure> xla;
  std::vector<KernelKill> kills;
  std::vector<Process> tasks;  // of the kernel's table
  std::optional<SizedFact> cgroup_usage, cgroup_limit;
  std::optional<SizedFact> swap_total, swap_free;
  std::optional<SizedFact> container_limit;  // of a pod's or container's description
  std::vector<NamedFact> jobs;               // Slurm, LSF, PBS, YARN
  std::vector<NamedFact> containers;         // Docker, Kubernetes, Ray, Colab
  std::vector<NamedFact> killed;             // the shell's word, exit 137
  std::vector<NamedFact> shared_memory;
  std::vector<ArrayFailure> arrays;
  std::vector<NamedFact> host_errors;  // MemoryError, std::bad_alloc, ENOMEM
  bool validates = false;              // the run has validation data that it takes from the training data
  int64_t lines = 0;
};

// The phrases of each family of logs.
void add_tensorflow_phrases(std::vector<Phrase>& phrases);
void add_torch_phrases(std::vector<Phrase>& phrases);
void add_xla_phrases(std::vector<Phrase>& phrases);
void add_host_phrases(std::vector<Phrase>& phrases);

// Reads a log piece by piece.
class LogReader {
 public:
  LogReader();
  void feed(std::string_view bytes);
  Facts finish();

 private:
  Facts facts_;
  PhraseTable table_;
  std::vector<Tape> tapes_;
  LineCutter cutter_;
};

}  // namespace plimsoll::engine::explain
