// Dropout. Computes Philox 4x32-10 (base/philox.h) for many counters in parallel: element e of sample s uses word e % 4
// of counter {e / 4, s, call, step}. A tile may begin and end anywhere in a sample, so whole groups of four words are
// drawn and the surplus is discarded.

constexpr int64_t kDraws = 64;  // counters per batch

inline void draw_many(uint64_t key, uint32_t group, uint32_t sample, uint32_t call, uint32_t step, uint32_t* words) {
  uint32_t c0[kDraws], c1[kDraws], c2[kDraws], c3[kDraws];
  for (int64_t i = 0; i < kDraws; ++i) {
    c0[i] = group + static_cast<uint32_t>(i);
    c1[i] = sample;
    c2[i] = call;
    c3[i] = step;
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t i = 0; i < kDraws; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int64_t i = 0; i < kDraws; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// x, rng i64[2], first sample i64[1]; f: rate, 1 / (1 - rate); i: elements per sample, call.
void tile_dropout(const TileCall& c) {
  const auto* x = static_cast<const float*>(c.in[0]);
  const auto* rng = static_cast<const int64_t*>(c.in[1]);
  const int64_t first_sample = *static_cast<const int64_t*>(c.in[2]);
  auto* y = static_cast<float*>(c.out[0]);
  const float rate = c.f[0], factor = c.f[1];
  const int64_t per_sample = c.i[0];
  uint32_t words[4 * kDraws];
  for (int64_t done = 0; done < c.n;) {
    const int64_t element = (c.first + done) % per_sample;
    const int64_t sample = first_sample + (c.first + done) / per_sample;
    const int64_t group = element / 4, skip = element % 4;
    int64_t count = 4 * kDraws - skip;
    if (count > c.n - done) count = c.n - done;
    if (count > per_sample - element) count = per_sample - element;
    draw_many(static_cast<uint64_t>(rng[0]), static_cast<uint32_t>(group), static_cast<uint32_t>(sample),
              static_cast<uint32_t>(c.i[1]), static_cast<uint32_t>(rng[1]), words);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float unit = static_cast<float>(static_cast<int32_t>(words[skip + i] >> 8)) * 0x1p-24F;
      y[done + i] = unit >= rate ? x[done + i] * factor : 0.0F;
    }
    done += count;
  }
}
