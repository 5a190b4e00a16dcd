// Card profiles read from user files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cuda/card.h"

namespace plimsoll::engine::cuda {
namespace {

// The profile of an H200 as a file would contain it.
nlohmann::json h200() {
  return {{"name", "NVIDIA H200"}, {"compute_capability", "9.0"}, {"multiprocessors", 132},  {"memory_mib", 143771},
          {"l2_mib", 60},          {"context_mib", 580},          {"memory_gb_per_s", 4300}, {"float32_tflops", 60},
          {"tf32_tflops", 380},    {"half_tflops", 790},          {"host_gb_per_s", 55}};
}

Result<Card> card_of(const std::string& text) {
  const std::string path = ::testing::TempDir() + "plimsoll-card-" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << text;
  auto card = card_from_file(path);
  std::filesystem::remove(path);
  return card;
}

// The error message for a profile with one value changed, or "none".
std::string refusal(const std::string& key, const nlohmann::json& value) {
  nlohmann::json json = h200();
  json[key] = value;
  const auto card = card_of(json.dump());
  if (card) return "none";
  EXPECT_EQ(card.error().code, ErrorCode::kBadConfig);
  return card.error().what;
}

TEST(CardFile, IsTheCardOfTheSameProfile) {
  const auto read = card_of(h200().dump());
  ASSERT_TRUE(read) << to_text(read.error());
  const auto known = card_from_profile("h200-141g");
  ASSERT_TRUE(known);
  EXPECT_EQ(read->name, known->name);
  EXPECT_EQ(read->capability, known->capability);
  EXPECT_EQ(read->multiprocessors, known->multiprocessors);
  EXPECT_EQ(read->memory_bytes, known->memory_bytes);
  EXPECT_EQ(read->free_bytes, known->free_bytes);
  EXPECT_EQ(read->l2_bytes, known->l2_bytes);
  EXPECT_EQ(read->context_bytes, known->context_bytes);
  EXPECT_EQ(read->bytes_per_second, known->bytes_per_second);
  EXPECT_EQ(read->flops_f32, known->flops_f32);
  EXPECT_EQ(read->flops_tf32, known->flops_tf32);
  EXPECT_EQ(read->flops_half, known->flops_half);
  EXPECT_EQ(read->host_bytes_per_second, known->host_bytes_per_second);
}

TEST(CardFile, IsToldFromTheNameOfADevice) {
  EXPECT_TRUE(is_profile_file("cards/My-Card.JSON"));
  EXPECT_FALSE(is_profile_file("rtx-4090-24g"));
  EXPECT_FALSE(is_profile_file("gpu:0"));
}

TEST(CardFile, KeysThatAreUnknownOrMissingAreNamed) {
  EXPECT_NE(refusal("memory_mb", 1).find("'memory_mb' is not a key of a card profile; did you mean 'memory_mib'?"),
            std::string::npos);
  const nlohmann::json whole = h200();
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json json = whole;
    json.erase(key);
    const auto card = card_of(json.dump());
    ASSERT_FALSE(card) << key;
    EXPECT_NE(card.error().what.find("'" + key + "' is missing"), std::string::npos) << card.error().what;
  }
}

TEST(CardFile, NumbersThatNoCardHasAreRefused) {
  const nlohmann::json whole = h200();
  for (const auto& [key, value] : whole.items()) {
    if (!value.is_number()) continue;
    for (const nlohmann::json& wrong : {nlohmann::json(-1), nlohmann::json(1e300), nlohmann::json("12"),
                                        nlohmann::json(nullptr), nlohmann::json::array({1})})
      EXPECT_NE(refusal(key, wrong).find("'" + key + "' must be"), std::string::npos) << key << " " << wrong;
  }
  EXPECT_NE(refusal("memory_mib", 2048.5).find("a whole number from 1024 to 16777216 MiB, got 2048.5"),
            std::string::npos);
  EXPECT_EQ(refusal("tf32_tflops", 0), "none");  // a card without tf32
  EXPECT_NE(refusal("memory_mib", 1024).find("none"), std::string::npos);
  nlohmann::json small = h200();
  small["memory_mib"] = 1024;
  small["context_mib"] = 1024;
  EXPECT_FALSE(card_of(small.dump()));
}

TEST(CardFile, TextsThatAreNoneAreRefused) {
  for (const nlohmann::json& wrong :
       {nlohmann::json(9.0), nlohmann::json("7.0"), nlohmann::json("90"), nlohmann::json("9."), nlohmann::json("-9.0"),
        nlohmann::json("9.0 "), nlohmann::json("99999999999.0")})
    EXPECT_NE(refusal("compute_capability", wrong).find("'compute_capability' must be"), std::string::npos) << wrong;
  EXPECT_NE(refusal("name", "").find("'name' must be"), std::string::npos);
  EXPECT_NE(refusal("name", 7).find("'name' must be"), std::string::npos);
}

TEST(CardFile, FilesThatHoldNoProfileAreRefused) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("7"),
                                  std::string(1 << 17, ' '), std::string(5000, '[')}) {
    const auto card = card_of(text);
    ASSERT_FALSE(card) << text.substr(0, 10);
    EXPECT_EQ(card.error().code, ErrorCode::kBadConfig);
  }
  EXPECT_EQ(card_from_file("no/such/card.json").error().code, ErrorCode::kFileUnreadable);
}

}  // namespace
}  // namespace plimsoll::engine::cuda
