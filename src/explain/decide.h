// Concludes from the facts of a log why memory ran out.
#pragma once

#include <string>
#include <vector>

#include "explain/facts.h"

namespace plimsoll::engine::explain {

enum class Cause : uint8_t {
  kNoOutOfMemory,
  kNotEnough,  // out of memory, but the log does not say why
  kTrueExcess,
  kFragmentation,
  kOtherProcess,
  kDataOnDevice,
  kImpossibleTensor,
  kValidation,
  kHostMemory,
  kContainerLimit,
  kJobLimit,
  kProcessLimit,
  kSharedMemory,
  kPinnedMemory,
};
std::string_view name_of(Cause cause);   // "true-excess", for --json
std::string_view title_of(Cause cause);  // "the model needs more than the device has"

enum class Certainty : uint8_t { kPossible, kLikely, kSure };
std::string_view name_of(Certainty certainty);

struct Figure {
  std::string name;  // "asked for"
  Bytes bytes = 0;
};

struct ChunkLine {
  Bytes bytes = 0;
  int64_t count = 0;
  std::vector<std::string> what;  // what these bytes are: from the log's shapes, or from the model
};

struct Verdict {
  Cause cause = Cause::kNoOutOfMemory;
  Certainty certainty = Certainty::kSure;
  bool disguised = false;  // the message names something else than memory
  std::string where;       // "GPU", "host"
  std::string summary;     // one sentence with the figures
  std::vector<Figure> figures;
  std::vector<ChunkLine> chunks;  // the largest, largest first
  std::vector<std::string> why;
  std::vector<std::string> remedies;
  std::vector<Sighting> evidence;
  Size limit;  // what a plan for this device may use
  bool of_keras = false;
};

struct Explanation {
  Verdict verdict;
  std::vector<Verdict> also;  // other failures of this log, less certain or later
  std::vector<Sighting> harmless;
  int64_t lines = 0;
};

Explanation explain(const Facts& facts);

// Each looks at one family of facts and returns nothing if the log has none of them.
std::optional<Verdict> decide_pool(const Facts& facts);      // TensorFlow's allocators
std::optional<Verdict> decide_disguise(const Facts& facts);  // cuDNN, cuBLAS, Dst tensor, a bare code of CUDA
std::optional<Verdict> decide_torch(const Facts& facts);
std::optional<Verdict> decide_xla(const Facts& facts);
std::optional<Verdict> decide_kernel(const Facts& facts);  // the kernel's killer and cgroups
std::optional<Verdict> decide_limits(const Facts& facts);  // jobs, containers, shells, /dev/shm
std::optional<Verdict> decide_array(const Facts& facts);   // numpy, PyTorch on the host

std::string shape_words(const std::vector<int64_t>& dims);  // "2048 x 436631"
std::string count_words(int64_t number);                    // "53,312"

}  // namespace plimsoll::engine::explain
