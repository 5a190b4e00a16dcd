// The arithmetic of the optimizer updates (src/ops/optimizers.cpp), shared by kernels that NVRTC compiles at run time
// and kernels compiled with the program: PLIMSOLL_DEVICE_CODE turns it into text or code. Both must be compiled without
// contraction (FMA).
PLIMSOLL_DEVICE_CODE(
    __device__ inline float decayed(float w, float decay, float rate) { return w - w * decay * rate; }

    __device__ inline float sgd_state(float state, float g, float momentum, float rate) {
      return state * momentum - g * rate;
    }

    __device__ inline float adam_moment(float moment, float x, float rest) { return moment + (x - moment) * rest; }

    __device__ inline float adam_weight(float w, float m, float v, float alpha, float epsilon) {
      return w - m * alpha / (sqrtf(v) + epsilon);
    }

    __device__ inline float adam_rate(float rate, long long step, double beta_1, double beta_2) {
      const double t = static_cast<double>(step);
      return static_cast<float>(rate * sqrt(1.0 - pow(beta_2, t)) / (1.0 - pow(beta_1, t)));
    })
