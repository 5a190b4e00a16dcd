// Optimizer updates and other element-wise operations on weights. A comment after a signature lists the inputs, the
// constants in `f`, and -> the outputs.

void tile_moving_average(const TileCall& c) {  // moving, batch; f: momentum, 1 - momentum
  const float keep = c.f[0], take = c.f[1];
  map2(c, [=](float m, float b) { return m * keep + b * take; });
}
void tile_clip(const TileCall& c) {  // f: limit
  const float limit = c.f[0];
  map1(c, [=](float g) { return g > limit ? limit : (g < -limit ? -limit : g); });
}
void tile_l1_l2_grad(const TileCall& c) {  // w, dtotal; f: l1, 2 * l2
  const float l1 = c.f[0] * scalar(c, 1), l2 = c.f[1] * scalar(c, 1);
  map1(c, [=](float w) { return (w > 0.0F ? l1 : (w < 0.0F ? -l1 : 0.0F)) + l2 * w; });
}

void tile_unscale(const TileCall& c) {  // g, scale
  const float scale = scalar(c, 1);
  map1(c, [=](float g) { return g / scale; });
}
void tile_keep_if(const TileCall& c) {  // new value, old value, count of non-finite gradient elements
  const bool keep = scalar(c, 2) != 0.0F;
  map2(c, [=](float fresh, float old) { return keep ? old : fresh; });
}

// f: momentum, weight decay.
void tile_sgd(const TileCall& c) {  // w, g, learning rate
  const float rate = scalar(c, 2), decay = rate * c.f[1];
  map2(c, [=](float w, float g) { return w - w * decay - rate * g; });
}
void tile_sgd_momentum(const TileCall& c) {  // w, g, learning rate, m -> w, m
  const float rate = scalar(c, 2), momentum = c.f[0], decay = rate * c.f[1];
  const auto *w = static_cast<const float*>(c.in[0]), *g = static_cast<const float*>(c.in[1]);
  const auto* m = static_cast<const float*>(c.in[3]);
  auto *w_new = static_cast<float*>(c.out[0]), *m_new = static_cast<float*>(c.out[1]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) {
    const float v = momentum * m[i] - rate * g[i];
    const float updated = w[i] - w[i] * decay + v;
    m_new[i] = v;
    w_new[i] = updated;
  }
}
void tile_sgd_nesterov(const TileCall& c) {  // w, g, learning rate, m -> w, m
  const float rate = scalar(c, 2), momentum = c.f[0], decay = rate * c.f[1];
  const auto *w = static_cast<const float*>(c.in[0]), *g = static_cast<const float*>(c.in[1]);
  const auto* m = static_cast<const float*>(c.in[3]);
  auto *w_new = static_cast<float*>(c.out[0]), *m_new = static_cast<float*>(c.out[1]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) {
    const float step = rate * g[i];
    const float v = momentum * m[i] - step;
    const float updated = w[i] - w[i] * decay + (momentum * v - step);
    m_new[i] = v;
    w_new[i] = updated;
  }
}

// w, g, m, v, alpha (learning rate with both bias corrections), decay (learning rate * weight decay) -> w, m, v; f: 1 -
// beta_1, 1 - beta_2, epsilon. As in Keras, m += (g - m) * (1 - beta_1), likewise v.
void tile_adam(const TileCall& c) {
  const float alpha = scalar(c, 4), decay = scalar(c, 5);
  const float b1 = c.f[0], b2 = c.f[1], epsilon = c.f[2];
  const auto *w = static_cast<const float*>(c.in[0]), *g = static_cast<const float*>(c.in[1]);
  const auto *m = static_cast<const float*>(c.in[2]), *v = static_cast<const float*>(c.in[3]);
  auto *w_new = static_cast<float*>(c.out[0]), *m_new = static_cast<float*>(c.out[1]),
       *v_new = static_cast<float*>(c.out[2]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) {
    const float gi = g[i];
    const float mi = m[i] + (gi - m[i]) * b1;
    const float vi = v[i] + (gi * gi - v[i]) * b2;
    const float updated = w[i] - w[i] * decay - mi * alpha / (__builtin_sqrtf(vi) + epsilon);
    m_new[i] = mi;
    v_new[i] = vi;
    w_new[i] = updated;
  }
}
