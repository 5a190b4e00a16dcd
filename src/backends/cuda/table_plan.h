// Where the gradient of a table keeps its things in the workspace. Tokens are sorted by the row they name, stably, so
// that each row of the gradient adds up its tokens in their order.
#pragma once

#include <cstdint>

namespace plimsoll::cuda {

inline constexpr int kSortTile = 2048;  // tokens a block sorts
inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
inline constexpr int kRunOfTokens = 64;  // tokens of one row whose sum is taken beforehand: rows with many tokens

struct TableGrad {
  int64_t tokens = 0, rows = 0, width = 0;
  int passes = 0;  // over the digits of a row's number; number `rows` stands for tokens without a row
  int64_t sort_blocks = 0, runs = 0;
  // Offsets in bytes.
  int64_t keys[2] = {}, order[2] = {}, counts = 0, starts = 0, sums = 0;
  int64_t bytes = 0;
};

inline TableGrad plan_table_grad(int64_t tokens, int64_t rows, int64_t width) {
  TableGrad plan;
  plan.tokens = tokens, plan.rows = rows, plan.width = width;
  while (plan.passes * kDigitBits < 31 && (rows >> (plan.passes * kDigitBits)) > 0) ++plan.passes;
  plan.sort_blocks = (tokens + kSortTile - 1) / kSortTile;
  plan.runs = tokens / kRunOfTokens;
  const auto take = [&](int64_t numbers) {  // of four bytes
    const int64_t at = plan.bytes;
    plan.bytes += (numbers * 4 + 63) / 64 * 64;
    return at;
  };
  for (int i = 0; i < 2; ++i) {
    plan.keys[i] = take(tokens);
    plan.order[i] = take(tokens);
  }
  plan.counts = take(plan.sort_blocks * kDigits);
  plan.starts = take(rows + 1);
  plan.sums = take(plan.runs * width);
  return plan;
}

}  // namespace plimsoll::cuda
