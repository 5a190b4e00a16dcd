#include "backends/cuda/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

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
constexpr const char* kMeasured = "h200-141g";
constexpr Row kRows[] = {
    {"b200-180g", "NVIDIA B200", 100, 148, 183359, 126, 700, 7200, 64, 900, 1800, 55},
    {"h200-141g", "NVIDIA H200", 90, 132, 143771, 60, 580, 4300, 60, 380, 790, 55},
    {"h100-80g", "NVIDIA H100 80GB HBM3", 90, 132, 81559, 50, 580, 3000, 60, 380, 790, 55},
    {"a100-80g", "NVIDIA A100-SXM4-80GB", 80, 108, 81920, 40, 480, 1800, 17, 125, 250, 25},
    {"a100-40g", "NVIDIA A100-SXM4-40GB", 80, 108, 40960, 40, 480, 1400, 17, 125, 250, 25},
    {"l40s-48g", "NVIDIA L40S", 89, 142, 46068, 96, 500, 780, 78, 146, 290, 25},
    {"rtx-a6000-48g", "NVIDIA RTX A6000", 86, 84, 49140, 6, 400, 690, 33, 62, 124, 25},
    {"v100-32g", "Tesla V100-SXM2-32GB", 70, 80, 32510, 6, 400, 810, 13, 0, 100, 12},
    {"v100-16g", "Tesla V100-SXM2-16GB", 70, 80, 16160, 6, 400, 810, 13, 0, 100, 12},
    {"l4-24g", "NVIDIA L4", 89, 58, 23034, 48, 320, 270, 25, 48, 97, 25},
    {"a10-24g", "NVIDIA A10", 86, 72, 23028, 6, 350, 540, 26, 50, 100, 25},
    {"t4-16g", "Tesla T4", 75, 40, 15360, 4, 260, 285, 7, 0, 50, 12},
    {"rtx-5090-32g", "NVIDIA GeForce RTX 5090", 120, 170, 32607, 96, 560, 1610, 90, 84, 168, 55},
    {"rtx-5080-16g", "NVIDIA GeForce RTX 5080", 120, 84, 16303, 64, 460, 865, 48, 45, 90, 55},
    {"rtx-5070-12g", "NVIDIA GeForce RTX 5070", 120, 48, 12227, 48, 400, 605, 26, 25, 49, 55},
    {"rtx-4090-24g", "NVIDIA GeForce RTX 4090", 89, 128, 24564, 72, 480, 910, 70, 66, 132, 25},
    {"rtx-4080-16g", "NVIDIA GeForce RTX 4080", 89, 76, 16376, 64, 400, 645, 41, 39, 78, 25},
    {"rtx-4070-12g", "NVIDIA GeForce RTX 4070", 89, 46, 12282, 36, 300, 450, 25, 23, 47, 25},
    {"rtx-4060-ti-16g", "NVIDIA GeForce RTX 4060 Ti", 89, 34, 16380, 32, 290, 260, 19, 17, 35, 12},
    {"rtx-4060-8g", "NVIDIA GeForce RTX 4060", 89, 24, 8188, 24, 270, 245, 13, 12, 24, 12},
    {"rtx-3090-24g", "NVIDIA GeForce RTX 3090", 86, 82, 24576, 6, 380, 840, 30, 28, 57, 25},
    {"rtx-3080-10g", "NVIDIA GeForce RTX 3080", 86, 68, 10240, 5, 340, 680, 25, 24, 47, 25},
    {"rtx-3070-8g", "NVIDIA GeForce RTX 3070", 86, 46, 8192, 4, 290, 400, 17, 16, 32, 25},
    {"rtx-3060-12g", "NVIDIA GeForce RTX 3060", 86, 28, 12288, 3, 270, 320, 11, 10, 20, 25},
    {"rtx-3050-8g", "NVIDIA GeForce RTX 3050", 86, 20, 8192, 2, 260, 200, 8, 7, 15, 12},
    {"rtx-2080-ti-11g", "NVIDIA GeForce RTX 2080 Ti", 75, 68, 11264, 6, 320, 550, 12, 0, 43, 12},
    {"rtx-2060-6g", "NVIDIA GeForce RTX 2060", 75, 30, 6144, 3, 260, 300, 5.5, 0, 20, 12},
    {"rtx-4090-laptop-16g", "NVIDIA GeForce RTX 4090 Laptop GPU", 89, 76, 16376, 64, 400, 520, 28, 26, 53, 25},
    {"rtx-4060-laptop-8g", "NVIDIA GeForce RTX 4060 Laptop GPU", 89, 24, 8188, 32, 270, 230, 10, 9, 18, 12},
    {"rtx-3060-laptop-6g", "NVIDIA GeForce RTX 3060 Laptop GPU", 86, 30, 6144, 3, 270, 300, 9, 9, 17, 12},
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
  card.measured = std::string_view(row.profile) == kMeasured;
  return card;
}

// "NVIDIA GeForce RTX 3060" and "rtx3060" are "rtx3060".
std::string letters_of(const std::string& text) {
  std::string letters;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string maker : {"nvidia", "geforce", "tesla"})
    if (const size_t at = letters.find(maker); at != std::string::npos) letters.erase(at, maker.size());
  return letters;
}

// Returns the one card that the user may mean by "rtx3060", "RTX 3060" or "Tesla T4"; null if there are none or
// several.
const Card* card_meant(const std::string& text) {
  const std::string asked = letters_of(text);
  const Card* meant = nullptr;
  for (const Card& card : card_profiles()) {
    if (letters_of(card.profile) == asked || letters_of(card.name) == asked) return &card;
    if (letters_of(card.profile.substr(0, card.profile.rfind('-'))) != asked) continue;
    if (meant != nullptr) return nullptr;
    meant = &card;
  }
  return meant;
}

// "8g", "8gb", "24GiB": a card of which only the memory is known. Its speed is that of an RTX 3060.
std::optional<Card> card_of_size(const std::string& text) {
  constexpr int kMostGib = 1024;
  int gib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gib);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (error != std::errc{} || gib < 1 || gib > kMostGib || (unit != "g" && unit != "gb" && unit != "gib")) return {};
  const auto like = std::find_if(card_profiles().begin(), card_profiles().end(),
                                 [](const Card& card) { return card.profile == "rtx-3060-12g"; });
  Card card = *like;
  card.profile = fmt::format("{}g", gib);
  card.name = fmt::format("a card with {} GiB", gib);
  card.memory_bytes = card.free_bytes = gib * kGiB;
  card.context_bytes = 400 * kMiB;
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
  if (const auto card = card_of_size(profile)) return *card;
  if (const Card* card = card_meant(profile)) return *card;
  std::vector<std::string> known;
  for (const Card& card : card_profiles()) known.push_back(card.profile);
  Error error{ErrorCode::kUsage, fmt::format("there is no device '{}'", profile), {}, {}};
  error.fact(fmt::format("profiles: {}", fmt::join(known, ", ")));
  for (const std::string& near : nearest_names(profile, known)) error.remedy("--device " + near);
  if (error.remedies.empty()) error.remedy("--device cpu, --device gpu, or one of the profiles above");
  error.remedy("--device 8g   any card with 8 GiB");
  error.remedy("--device CARD.json   your own profile (docs/gpu.md)");
  return fail(std::move(error));
}

}  // namespace plimsoll::engine::cuda
