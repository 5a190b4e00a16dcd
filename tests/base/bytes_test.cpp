#include "base/bytes.h"

#include <gtest/gtest.h>

namespace plimsoll::engine {
namespace {

TEST(Bytes, SizesAsPeopleWriteThem) {
  for (const auto& [text, bytes] :
       {std::pair{"4096", Bytes{4096}}, std::pair{"17B", Bytes{17}}, std::pair{"64k", 64 * kKiB},
        std::pair{"512M", 512 * kMiB}, std::pair{"4G", 4 * kGiB}, std::pair{"4g", 4 * kGiB},
        std::pair{"1T", 1024 * kGiB}, std::pair{"7gib", 7 * kGiB}, std::pair{"2Gi", 2 * kGiB},
        std::pair{"1.5 GiB", 3 * kGiB / 2}, std::pair{"8gb", Bytes{8'000'000'000}},
        std::pair{"1Gb", Bytes{1'000'000'000}}, std::pair{"1.5GB", Bytes{1'500'000'000}}}) {
    const auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(Bytes, WhatIsNotASize) {
  for (const char* text : {"", "G", "12XB", "-1GiB", "4GG", "4 G B", "nan", "inf", "1e30", "4G;rm"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

}  // namespace
}  // namespace plimsoll::engine
