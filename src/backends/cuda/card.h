// A GPU as plain data, read off a device or taken from a profile: everything a plan may depend on.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine::cuda {

struct Card {
  std::string name;     // "NVIDIA H200"
  std::string profile;  // "h200-141g"; empty for a card without one
  int capability = 0;   // 90 for compute capability 9.0
  int multiprocessors = 0;
  Bytes memory_bytes = 0;
  Bytes free_bytes = 0;
  Bytes l2_bytes = 0;
  Bytes context_bytes = 0;      // what the driver takes for a process with the libraries loaded
  double bytes_per_second = 0;  // device memory, reads and writes together, as a long copy reaches
  double flops_f32 = 0;         // plain float32 units
  double flops_tf32 = 0;        // matrix units; 0 where the card has no such mode
  double flops_half = 0;        // matrix units, f16 or bf16
  double host_bytes_per_second = 0;
  // The user's choices.
  int ordinal = 0;             // its number among the visible cards
  bool tf32 = true;            // whether float32 matrix work may use it
  bool memory_growth = false;  // whether memory is mapped as phases need it

  bool has_bfloat16() const { return capability >= 80; }
  bool has_tf32() const { return tf32 && flops_tf32 > 0; }
};

// Cards one can plan for without having them: "rtx-4090-24g".
const std::vector<Card>& card_profiles();
Result<Card> card_from_profile(const std::string& profile);
// A profile that the user brings as a file (docs/gpu.md): whether a device is written as one, and the card in it. An
// unknown or missing key and a number no card can have are P204.
bool is_profile_file(const std::string& device);
Result<Card> card_from_file(const std::string& path);

}  // namespace plimsoll::engine::cuda
