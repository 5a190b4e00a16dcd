// The arithmetic that a core reaches without memory: independent multiply-adds on registers. 12 chains cover a latency
// of six cycles of two units.

double multiply_adds(int64_t rounds, float* result) {
  constexpr int kChains = 12;
  Vec sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = spread(static_cast<float>(i));
  const Vec factor = spread(0.999F), term = spread(*result);
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = add_product(sums[i], factor, term);
  Vec sum = sums[0];
  for (int i = 1; i < kChains; ++i) sum = sum + sums[i];
  float lanes[kLanes];
  store(lanes, sum);
  for (int64_t i = 0; i < kLanes; ++i) *result += lanes[i];
  return 2.0 * kChains * static_cast<double>(kLanes * rounds);
}
