#include "backends/cuda/card.h"

#include <fmt/format.h>

#include "base/suggest.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

struct Row {
  const char *profile, *name;
  int capability, multiprocessors, memory_mib, l2_mib, context_mib;
  double gigabytes_per_second, f32, tf32, half, link;  // flops in tera-operations per second; link in GB/s
};

// Rates are those reached by long copies and large matrix products, not the data sheet's. The H200 was measured (4.3
// TB/s read plus write, 790 TFLOP/s in bf16, 526 MiB of context). The others are the data sheet's rates times the share
// that the H200 reaches (0.9 of the bandwidth, 0.8 of the tensor cores with float32 accumulation). The memory size is
// the one that the driver reports.
constexpr Row kRows[] = {
    {"h200-141g", "NVIDIA H200", 90, 132, 143771, 60, 580, 4300, 60, 380, 790, 55},
    {"h100-80g", "NVIDIA H100 80GB HBM3", 90, 132, 81559, 50, 580, 3000, 60, 380, 790, 55},
    {"a100-80g", "NVIDIA A100-SXM4-80GB", 80, 108, 81920, 40, 480, 1800, 17, 125, 250, 25},
    {"a100-40g", "NVIDIA A100-SXM4-40GB", 80, 108, 40960, 40, 480, 1400, 17, 125, 250, 25},
    {"l4-24g", "NVIDIA L4", 89, 58, 23034, 48, 320, 270, 25, 48, 97, 25},
    {"t4-16g", "Tesla T4", 75, 40, 15360, 4, 260, 285, 7, 0, 50, 12},
    {"rtx-5090-32g", "NVIDIA GeForce RTX 5090", 120, 170, 32607, 96, 560, 1610, 90, 84, 168, 55},
    {"rtx-4090-24g", "NVIDIA GeForce RTX 4090", 89, 128, 24564, 72, 480, 910, 70, 66, 132, 25},
    {"rtx-4070-12g", "NVIDIA GeForce RTX 4070", 89, 46, 12282, 36, 300, 450, 25, 23, 47, 25},
    {"rtx-3090-24g", "NVIDIA GeForce RTX 3090", 86, 82, 24576, 6, 380, 840, 30, 28, 57, 25},
    {"rtx-3060-12g", "NVIDIA GeForce RTX 3060", 86, 28, 12288, 3, 270, 320, 11, 10, 20, 25},
    {"rtx-2080-ti-11g", "NVIDIA GeForce RTX 2080 Ti", 75, 68, 11264, 6, 320, 550, 12, 0, 43, 12},
};

Card card_of(const Row& row) {
  Card card;
  card.profile = row.profile;
  card.name = row.name;
  card.capability = row.capability;
  card.multiprocessors = row.multiprocessors;
  card.memory_bytes = card.free_bytes = row.memory_mib * kMiB;
  card.l2_bytes = row.l2_mib * kMiB;
  card.context_bytes = row.context_mib * kMiB;
  card.bytes_per_second = row.gigabytes_per_second * kGiga;
  card.flops_f32 = row.f32 * kTera;
  card.flops_tf32 = row.tf32 * kTera;
  card.flops_half = row.half * kTera;
  card.host_bytes_per_second = row.link * kGiga;
  return card;
}

}  // namespace

const std::vector<Card>& card_profiles() {
  static const std::vector<Card> kCards = [] {
    std::vector<Card> cards;
    for (const Row& row : kRows) cards.push_back(card_of(row));
    return cards;
  }();
  return kCards;
}

Result<Card> card_from_profile(const std::string& profile) {
  std::vector<std::string> known;
  for (const Card& card : card_profiles()) {
    if (card.profile == profile) return card;
    known.push_back(card.profile);
  }
  Error error{ErrorCode::kUsage, fmt::format("there is no device '{}'", profile), {}, {}};
  error.fact(fmt::format("profiles: {}", fmt::join(known, ", ")));
  for (const std::string& near : nearest_names(profile, known)) error.remedy("--device " + near);
  if (error.remedies.empty()) error.remedy("--device cpu, --device gpu, or one of the profiles above");
  error.remedy("--device CARD.json   your own profile (docs/gpu.md)");
  return fail(std::move(error));
}

}  // namespace plimsoll::engine::cuda
