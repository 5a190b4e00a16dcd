// A GPU as plain data, read from a device or taken from a profile. A plan depends on a card only through these fields.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine::cuda {

struct Card {
  std::string name;     // "NVIDIA H200"
  std::string profile;  // "h200-141g"; empty if the card has no profile
  int capability = 0;   // 90 for compute capability 9.0
  int multiprocessors = 0;
  Bytes memory_bytes = 0;
  Bytes free_bytes = 0;
  Bytes l2_bytes = 0;
  Bytes context_bytes = 0;      // memory that the driver takes per process once the libraries are loaded
  double bytes_per_second = 0;  // device memory, reads plus writes, as reached by a long copy
  double flops_f32 = 0;         // CUDA cores, float32
  double flops_tf32 = 0;        // tensor cores; 0 if the card has no tf32
  double flops_half = 0;        // tensor cores, f16 or bf16
  double host_bytes_per_second = 0;
  bool measured = false;  // the rates were measured on such a card; else they come from its data sheet
  std::string driver;     // "CUDA 13.0, cuDNN 91400"; empty if the card is not in this machine
  // Options set by the user.
  int ordinal = 0;             // index among the visible cards
  bool tf32 = true;            // allow float32 GEMMs and convolutions to use tf32
  bool memory_growth = false;  // map memory as phases need it, not all at the start

  bool has_bfloat16() const { return capability >= 80; }
  bool has_tf32() const { return tf32 && flops_tf32 > 0; }
};

// Cards that can be planned for without having them, e.g. "rtx-4090-24g".
const std::vector<Card>& card_profiles();
// `profile`: the name of a profile, or one that can mean only one of them ("rtx3060", "Tesla T4"), or the memory of any
// card ("8g").
Result<Card> card_from_profile(const std::string& profile);
// Profiles in JSON files written by users (docs/gpu.md): whether the value of --device is the path of such a file, and
// the card it describes. Unknown or missing keys and implausible numbers are error P204.
bool is_profile_file(const std::string& device);
Result<Card> card_from_file(const std::string& path);

}  // namespace plimsoll::engine::cuda
