// Recipes for ctc and its gradient. A thread computes a sample: log probabilities of the steps' states in double, first
// forward over the steps, then for the gradient backward, with one row of the backward pass kept.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t samples, steps, classes, labels;

  int64_t states() const { return 2 * labels + 1; }
  // Doubles per thread: the logarithms of the sums of exp, the forward pass, two rows of the backward pass, and the
  // shares of the classes.
  int64_t workspace() const { return steps + steps * states() + 2 * states() + classes; }
};

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

// One sample in a thread's workspace. An even state is a blank (class 0), state 2i + 1 is label i.
class Sample {
 public:
  Sample(const Sizes& sizes, const float* x, const int32_t* labels, double* workspace)
      : sizes_(sizes), x_(x), labels_(labels), sums_(workspace), forward_(workspace + sizes.steps) {
    const auto used = std::count_if(labels, labels + sizes.labels, [](int32_t label) { return label != 0; });
    states_ = 2 * used + 1;
    backward_ = forward_ + sizes.steps * sizes.states();
    share_ = backward_ + 2 * sizes.states();
    valid_ = std::all_of(labels, labels + used, [&](int32_t label) { return label >= 0 && label < sizes.classes; });
  }

  double loss() {
    if (!valid_) return std::numeric_limits<double>::quiet_NaN();
    run_forward();
    return -likelihood();
  }

  void gradient(double d, float* dx) {
    if (!valid_) return std::fill(dx, dx + sizes_.steps * sizes_.classes, std::numeric_limits<float>::quiet_NaN());
    run_forward();
    const double total = likelihood();
    double *now = backward_, *next = backward_ + sizes_.states();
    for (int64_t t = sizes_.steps - 1; t >= 0; --t, std::swap(now, next)) {
      for (int64_t s = 0; s < states_; ++s) now[s] = t + 1 < sizes_.steps ? from(t + 1, s, next) : last(s);
      std::fill_n(share_, sizes_.classes, 0.0);
      for (int64_t s = 0; s < states_; ++s) share_[symbol(s)] += std::exp(forward_[t * states_ + s] + now[s] - total);
      for (int64_t k = 0; k < sizes_.classes; ++k)
        dx[t * sizes_.classes + k] = static_cast<float>(d * (std::exp(log_probability(t, k)) - share_[k]));
    }
  }

 private:
  int32_t symbol(int64_t state) const { return state % 2 == 0 ? 0 : labels_[state / 2]; }
  double log_probability(int64_t t, int64_t k) const {
    return static_cast<double>(x_[t * sizes_.classes + k]) - sums_[t];
  }
  double emit(int64_t t, int64_t state) const { return log_probability(t, symbol(state)); }
  bool skips_to(int64_t state) const { return state >= 3 && state % 2 == 1 && symbol(state) != symbol(state - 2); }
  double last(int64_t state) const { return state >= states_ - 2 ? 0 : kNever; }

  void run_forward() {
    for (int64_t t = 0; t < sizes_.steps; ++t) {
      const float* row = x_ + t * sizes_.classes;
      const double top = *std::max_element(row, row + sizes_.classes);
      double sum = 0;
      for (int64_t k = 0; k < sizes_.classes; ++k) sum += std::exp(static_cast<double>(row[k]) - top);
      sums_[t] = top + std::log(sum);
    }
    for (int64_t s = 0; s < states_; ++s) forward_[s] = s < 2 ? emit(0, s) : kNever;
    for (int64_t t = 1; t < sizes_.steps; ++t) {
      const double* before = forward_ + (t - 1) * states_;
      for (int64_t s = 0; s < states_; ++s) {
        double sum = before[s];
        if (s >= 1) sum = log_add(sum, before[s - 1]);
        if (skips_to(s)) sum = log_add(sum, before[s - 2]);
        forward_[t * states_ + s] = sum + emit(t, s);
      }
    }
  }

  double likelihood() const {
    const double* end = forward_ + sizes_.steps * states_;
    return states_ == 1 ? end[-1] : log_add(end[-1], end[-2]);
  }

  // The log probability of ending well from `state`, where `next` has it for the states of step t.
  double from(int64_t t, int64_t state, const double* next) const {
    double sum = next[state] + emit(t, state);
    if (state + 1 < states_) sum = log_add(sum, next[state + 1] + emit(t, state + 1));
    if (state + 2 < states_ && skips_to(state + 2)) sum = log_add(sum, next[state + 2] + emit(t, state + 2));
    return sum;
  }

  const Sizes& sizes_;
  const float* x_;
  const int32_t* labels_;
  double *sums_, *forward_, *backward_ = nullptr, *share_ = nullptr;
  int64_t states_ = 1;
  bool valid_ = true;
};

}  // namespace

Result<Recipe> ctc_recipe(const Problem& p) {
  const bool grad = p.node.op == "ctc_grad";
  const size_t x = grad ? 1 : 0;
  const Shape& shape = p.in_shape(x);
  const Sizes sizes{shape[0], shape[1], shape[2], p.in_shape(x + 1)[1]};
  const int threads = p.machine.threads;
  const double passes = grad ? 2 : 1;
  const double work = passes * static_cast<double>(sizes.samples * sizes.steps) *
                      static_cast<double>(sizes.classes + 4 * sizes.states());
  const Bytes workspace = static_cast<Bytes>(sizeof(double)) * sizes.workspace() * threads;
  return own_recipe(p.node.op, workspace, p.machine.seconds(work, 0.02, p.traffic()), [=](const BoundNode& node) {
    return [=, logits = input<const float>(node, x), labels = input<const int32_t>(node, x + 1),
            d = grad ? input<const float>(node, 0) : nullptr, to = output<float>(node, 0),
            doubles = static_cast<double*>(node.workspace)] {
      parallel_items(threads, sizes.samples, [&](int64_t sample, int thread) {
        const int64_t elements = sizes.steps * sizes.classes;
        Sample one(sizes, logits + sample * elements, labels + sample * sizes.labels,
                   doubles + thread * sizes.workspace());
        if (grad)
          one.gradient(static_cast<double>(d[sample]), to + sample * elements);
        else
          to[sample] = static_cast<float>(one.loss());
      });
    };
  });
}

}  // namespace plimsoll::engine::cpu
