// The weight gradient of a convolution over an image with few channels. One row of kernel taps covers kw * c
// consecutive values of an image row, so nothing is packed.

// Processes as many taps at once as the registers allow. The taps of common kernels (kw * c of 3, 6, 9, 12) are done in
// one step.
template <int ROWS, int VECTORS>
inline int64_t few_channel_runs(const FewChannelRows& t, int64_t k, const float* from, const float* dy, float* sums) {
  for (; k + ROWS <= t.run; k += ROWS)
    small_product<ROWS, VECTORS, true>(t.pixels, from + k, 1, t.step, dy, t.o, sums + k * t.o, t.o);
  return k;
}

template <int VECTORS>
inline void few_channel_row(const FewChannelRows& t, const float* from, const float* dy, float* sums) {
  int64_t k = 0;
  if (kMr >= 12) {
    k = few_channel_runs<12, VECTORS>(t, k, from, dy, sums);
    k = few_channel_runs<9, VECTORS>(t, k, from, dy, sums);
  }
  k = few_channel_runs<6, VECTORS>(t, k, from, dy, sums);
  k = few_channel_runs<3, VECTORS>(t, k, from, dy, sums);
  few_channel_runs<1, VECTORS>(t, k, from, dy, sums);
}

// Adds the contribution of one row of dy to sums[kh * run][o], and dy itself to bias_sums[o].
void few_channel_weight_grad(const FewChannelRows& t, const float* dy, float* sums, float* bias_sums) {
  const auto all_runs = [&](int64_t channel, bool pair) {
    for (int64_t r = 0; r < t.kh; ++r) {
      if (t.rows[r] == nullptr) continue;
      float* to = sums + r * t.run * t.o + channel;
      if (pair)
        few_channel_row<2>(t, t.rows[r], dy + channel, to);
      else
        few_channel_row<1>(t, t.rows[r], dy + channel, to);
    }
  };
  int64_t channel = 0;
  for (; channel + kNr <= t.o; channel += kNr) all_runs(channel, true);
  for (; channel < t.o; channel += kLanes) all_runs(channel, false);
  add_rows(t.pixels, dy, t.o, t.o, bias_sums);
}
