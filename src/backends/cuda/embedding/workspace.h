// The workspace layout of an embedding gradient, whether it is stored or applied row by row. Tokens are stably sorted
// by row, so that each row adds up its tokens in their original order.
#pragma once

#include <cstdint>

namespace plimsoll::engine {
struct NodeView;
}

namespace plimsoll::engine::cuda {

inline constexpr int kSortTile = 2048;  // tokens sorted per block
inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
inline constexpr int kRunOfTokens = 64;  // tokens per run; a run whose tokens all have one row is summed beforehand
inline constexpr int kLongRun = kRunOfTokens * kRunOfTokens;  // tokens per long run, i.e. a run of kRunOfTokens runs

struct EmbeddingGrad {
  int64_t tokens = 0, rows = 0, width = 0;
  bool every_row = true;  // if false, only rows that occur in the ids are processed
  int passes = 0;         // radix-sort passes over the row index; index `rows` stands for tokens with an invalid id
  int64_t sort_blocks = 0, runs = 0, long_runs = 0;
  // Offsets in bytes.
  int64_t keys[2] = {}, order[2] = {}, counts = 0, sums = 0, long_sums = 0;
  int64_t starts = 0, rate = 0;  // starts: one entry per row; rate: a value that an update computes once
  int64_t bytes = 0;
};

inline EmbeddingGrad plan_embedding_grad(int64_t tokens, int64_t rows, int64_t width, bool every_row = true) {
  EmbeddingGrad plan;
  plan.tokens = tokens, plan.rows = rows, plan.width = width, plan.every_row = every_row;
  while (plan.passes * kDigitBits < 31 && (rows >> (plan.passes * kDigitBits)) > 0) ++plan.passes;
  plan.sort_blocks = (tokens + kSortTile - 1) / kSortTile;
  plan.runs = tokens / kRunOfTokens;
  plan.long_runs = tokens / kLongRun;
  const auto take = [&](int64_t numbers) {  // elements of four bytes
    const int64_t at = plan.bytes;
    plan.bytes += (numbers * 4 + 63) / 64 * 64;
    return at;
  };
  for (int i = 0; i < 2; ++i) {
    plan.keys[i] = take(tokens);
    plan.order[i] = take(tokens);
  }
  plan.counts = take(plan.sort_blocks * kDigits);
  plan.sums = take(plan.runs * width);
  plan.long_sums = take(plan.long_runs * width);
  if (every_row) {
    plan.starts = take(rows + 1);
    plan.rate = take(1);
  }
  return plan;
}

// The plan of sgd_rows and adam_rows nodes.
EmbeddingGrad plan_embedding_update(const NodeView& node);

}  // namespace plimsoll::engine::cuda
