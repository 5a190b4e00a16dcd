// Transposes a tile, 4 x 4 elements at a time. Sixteen rows of the result are written together, so that each cache line
// that is read is used up at once.

typedef float Four __attribute__((vector_size(16)));

inline void transpose_4x4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  Four a, b, c, d;
  __builtin_memcpy(&a, from, sizeof a);
  __builtin_memcpy(&b, from + from_stride, sizeof b);
  __builtin_memcpy(&c, from + 2 * from_stride, sizeof c);
  __builtin_memcpy(&d, from + 3 * from_stride, sizeof d);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four rows[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                        __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                        __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int64_t r = 0; r < 4; ++r) __builtin_memcpy(to + r * to_stride, &rows[r], sizeof rows[r]);
}

void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kBand = 16;
  for (int64_t band = 0; band < rows; band += kBand) {
    const int64_t end = band + kBand < rows ? band + kBand : rows;
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      int64_t r = band;
      for (; r + 4 <= end; r += 4)
        transpose_4x4(from + c * from_stride + r, from_stride, to + r * to_stride + c, to_stride);
      for (; r < end; ++r)
        for (int64_t k = c; k < c + 4; ++k) to[r * to_stride + k] = from[k * from_stride + r];
    }
    for (; c < columns; ++c)
      for (int64_t r = band; r < end; ++r) to[r * to_stride + c] = from[c * from_stride + r];
  }
}
