// Dropout and random numbers. Computes Philox 4x32-10 (base/philox.h) for many counters in parallel: element e of
// sample s uses word e % 4 of counter {e / 4, s, call, step}. A tile may begin and end anywhere in a sample, so whole
// groups of four words are drawn and the surplus is discarded.

constexpr int64_t kDraws = 64;  // counters per batch

template <int64_t kCount = kDraws>
inline void draw_many(uint64_t key, uint32_t group, uint32_t sample, uint32_t call, uint32_t step, uint32_t* words) {
  uint32_t c0[kCount], c1[kCount], c2[kCount], c3[kCount];
  for (int64_t i = 0; i < kCount; ++i) {
    c0[i] = group + static_cast<uint32_t>(i);
    c1[i] = sample;
    c2[i] = call;
    c3[i] = step;
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t i = 0; i < kCount; ++i) {
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
  for (int64_t i = 0; i < kCount; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// Draws the words of a tile's elements. Calls use(words, skip, done, count): words[skip + k] belongs to element done +
// k of the tile, for k < count. i: elements per sample, call; 5: rows before the first.
template <typename Use>
inline void each_draw(const TileCall& c, const void* rng_at, const void* first_at, Use use) {
  const auto* rng = static_cast<const int64_t*>(rng_at);
  const int64_t first_sample = *static_cast<const int64_t*>(first_at) + c.i[5];
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
    use(words, skip, done, count);
    done += count;
  }
}

inline float unit_of(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
}

// x, rng i64[2], first sample i64[1]; f: rate, 1 / (1 - rate).
void tile_dropout(const TileCall& c) {
  const auto* x = static_cast<const float*>(c.in[0]);
  auto* y = static_cast<float*>(c.out[0]);
  const float rate = c.f[0], factor = c.f[1];
  each_draw(c, c.in[1], c.in[2], [=](const uint32_t* words, int64_t skip, int64_t done, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[done + i] = unit_of(words[skip + i]) >= rate ? x[done + i] * factor : 0.0F;
  });
}

// The same where elements share decisions. i: elements per sample, call, inner, size, shared (ops/dropout.cpp). The
// decisions of a stretch of a sample are drawn once per tile, then applied.
void tile_dropout_shared(const TileCall& c) {
  const auto* x = static_cast<const float*>(c.in[0]);
  const auto* rng = static_cast<const int64_t*>(c.in[1]);
  const int64_t first_sample = *static_cast<const int64_t*>(c.in[2]) + c.i[5];
  auto* y = static_cast<float*>(c.out[0]);
  const float rate = c.f[0], factor = c.f[1];
  const int64_t per_sample = c.i[0], inner = c.i[2], size = c.i[3];
  constexpr int64_t kHeld = 4 * kDraws;
  float held[kHeld];                         // factors of the decisions from held_from on
  int64_t held_from = -1, held_sample = -1;  // none yet
  for (int64_t done = 0; done < c.n;) {
    const int64_t at = c.first + done, element = at % per_sample;
    const int64_t sample = c.i[4] != 0 ? 0 : first_sample + at / per_sample;
    const int64_t decision = element / inner % size, from = decision / kHeld * kHeld;
    if (held_from != from || held_sample != sample) {
      uint32_t words[kHeld] = {};
      const auto draw = size <= 4 ? draw_many<1> : size <= 64 ? draw_many<16> : draw_many<kDraws>;
      draw(static_cast<uint64_t>(rng[0]), static_cast<uint32_t>(from / 4), static_cast<uint32_t>(sample),
           static_cast<uint32_t>(c.i[1]), static_cast<uint32_t>(rng[1]), words);
#pragma omp simd
      for (int64_t i = 0; i < kHeld; ++i) held[i] = unit_of(words[i]) >= rate ? factor : 0.0F;
      held_from = from;
      held_sample = sample;
    }
    // Up to the end of the held decisions (one element each), or of the elements that share this one.
    int64_t count = inner == 1 ? (size < from + kHeld ? size : from + kHeld) - decision : inner - element % inner;
    if (count > c.n - done) count = c.n - done;
    const float* factors = held + (decision - from);
    // A dropped infinity becomes 0, not NaN, as without sharing.
    if (inner == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[done + i] = factors[i] == 0.0F ? 0.0F : x[done + i] * factors[i];
    } else {
      const float kept = factors[0];
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[done + i] = kept == 0.0F ? 0.0F : x[done + i] * kept;
    }
    done += count;
  }
}

// rng, first sample.
void tile_random_uniform(const TileCall& c) {
  auto* y = static_cast<float*>(c.out[0]);
  each_draw(c, c.in[0], c.in[1], [=](const uint32_t* words, int64_t skip, int64_t done, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[done + i] = unit_of(words[skip + i]);
  });
}

// rng, first sample. Box and Muller's transform: two words give a radius and an angle, whose cosine and sine are the
// two numbers. The angle is u turns, so its quadrant is found without rounding.
void tile_random_normal(const TileCall& c) {
  auto* y = static_cast<float*>(c.out[0]);
  each_draw(c, c.in[0], c.in[1], [=](const uint32_t* words, int64_t skip, int64_t done, int64_t count) {
    float normals[4 * kDraws];
#pragma omp simd
    for (int64_t pair = 0; pair < 2 * kDraws; ++pair) {
      const float radius = __builtin_sqrtf(-2.0F * log_of(unit_of(words[2 * pair]) + 0x1p-24F));
      const float quarters = 4.0F * unit_of(words[2 * pair + 1]);
      const float n = static_cast<float>(static_cast<int32_t>(quarters + 0.5F));
      const float r = (quarters - n) * 1.57079632679489662F;
      const float s = sine_of_reduced(r), cosine = cosine_of_reduced(r);
      const bool odd = n == 1.0F || n == 3.0F;
      const float across = odd ? s : cosine, up = odd ? cosine : s;
      normals[2 * pair] = n == 1.0F || n == 2.0F ? -radius * across : radius * across;
      normals[2 * pair + 1] = n == 2.0F || n == 3.0F ? -radius * up : radius * up;
    }
    for (int64_t i = 0; i < count; ++i) y[done + i] = normals[skip + i];
  });
}
