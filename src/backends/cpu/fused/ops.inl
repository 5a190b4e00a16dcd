// The list of the CPU backend's element-wise instructions. A file that includes it defines what each row expands to:
//
//   UNARY(name, work, y)         y as a function of x, for the op `name`
//   BINARY(name, work, y)        y as a function of a and b, for the op `name`
//   TERNARY(name, work, y)       y as a function of a, b and other, for the op `name`
//   INSTRUCTION(name)            written by hand as tile_NAME in simd/*.inl; compile.cpp says which op emits it
//
// `work` is the cost in a compiled loop, relative to an add. The list generates the instruction numbers (simd.h), their
// loops per instruction set (simd/elementwise.inl), the tables of those loops (simd/table.inl), and the set of ops that
// have a tile form and can be part of a fused node (compile.cpp). Expressions use the functions of simd/math.inl; each
// is computed in the same way in the vector loop and in its remainder. A macro that the including file does not define
// expands to nothing.
// clang-format off
#ifndef UNARY
#define UNARY(name, work, ...)
#endif
#ifndef BINARY
#define BINARY(name, work, ...)
#endif
#ifndef TERNARY
#define TERNARY(name, work, ...)
#endif
#ifndef INSTRUCTION
#define INSTRUCTION(name)
#endif

BINARY(add, 1, a + b)
BINARY(multiply, 1, a * b)

// Gradients read dy as a. They read the output as b, or the input if the gradient cannot be computed from the output.
UNARY(sigmoid, kExpWork, sigmoid_of(x))
BINARY(sigmoid_grad, 1, a * (b * (1.0F - b)))
UNARY(tanh, 2 * kExpWork, tanh_of(x))
BINARY(tanh_grad, 1, a * ((1.0F - b) * (1.0F + b)))
UNARY(silu, kExpWork, x * sigmoid_of(x))
BINARY(silu_grad, kExpWork, silu_slope(a, b))
UNARY(hard_sigmoid, 4, hard_sigmoid_of(x))
BINARY(hard_sigmoid_grad, 2, b > 0.0F && b < 1.0F ? a / 6.0F : 0.0F)
UNARY(hard_silu, 5, x * hard_sigmoid_of(x))
BINARY(hard_silu_grad, 4, b <= -3.0F ? 0.0F : b >= 3.0F ? a : a * (b / 3.0F + 0.5F))

BINARY(subtract, 1, a - b)
BINARY(divide, 4, a / b)
BINARY(maximum, 1, a >= b || a != a ? a : b)
BINARY(minimum, 1, a <= b || a != a ? a : b)
BINARY(power, kCallWork, power_of(a, b))
BINARY(modulo, kCallWork, floor_mod(a, b))
BINARY(atan2, 2 * kExpWork, atan2_of(a, b))
BINARY(less, 1, a < b ? 1.0F : 0.0F)
BINARY(less_equal, 1, a <= b ? 1.0F : 0.0F)
BINARY(equal, 1, a == b ? 1.0F : 0.0F)
TERNARY(select, 1, a != 0.0F ? b : other)

UNARY(exp, kExpWork, exp_of(x))
UNARY(expm1, 2 * kExpWork, exp_minus_one(x))
UNARY(log, kExpWork, log_any(x))
UNARY(log1p, kExpWork, log1p_of(x))
UNARY(softplus, 2 * kExpWork, softplus_of(x))
UNARY(softsign, 4, x / (1.0F + __builtin_fabsf(x)))
UNARY(erf, 3 * kExpWork, erf_of(x))
UNARY(erfinv, 3 * kExpWork, erfinv_of(x))
UNARY(square, 1, x * x)
UNARY(sqrt, 4, __builtin_sqrtf(x))
UNARY(rsqrt, 6, 1.0F / __builtin_sqrtf(x))
UNARY(reciprocal, 4, 1.0F / x)
UNARY(sin, 2 * kExpWork, sin_of(x))
UNARY(cos, 2 * kExpWork, cos_of(x))
UNARY(tan, 2 * kExpWork, tan_of(x))
UNARY(asin, kExpWork, asin_of(x))
UNARY(acos, kExpWork, acos_of(x))
UNARY(atan, kExpWork, atan_of(x))
UNARY(sinh, 2 * kExpWork, sinh_of(x))
UNARY(cosh, 2 * kExpWork, cosh_of(x))
UNARY(asinh, 3 * kExpWork, asinh_of(x))
UNARY(acosh, 3 * kExpWork, acosh_of(x))
UNARY(atanh, 2 * kExpWork, atanh_of(x))
UNARY(stop_gradient, 1, x)
UNARY(abs, 1, __builtin_fabsf(x))
UNARY(sign, 1, x > 0.0F ? 1.0F : x < 0.0F ? -1.0F : x)
UNARY(floor, 1, __builtin_floorf(x))
UNARY(ceil, 1, __builtin_ceilf(x))
UNARY(round, 1, __builtin_rintf(x))
UNARY(trunc, 1, __builtin_truncf(x))
UNARY(is_nan, 1, x != x ? 1.0F : 0.0F)
UNARY(is_inf, 1, __builtin_fabsf(x) == __builtin_inff() ? 1.0F : 0.0F)

INSTRUCTION(copy)
INSTRUCTION(full_like)
INSTRUCTION(scale)
INSTRUCTION(affine)
INSTRUCTION(relu)
INSTRUCTION(relu_any)
INSTRUCTION(relu_grad)
INSTRUCTION(relu_grad_any)
INSTRUCTION(elu)
INSTRUCTION(elu_grad)
INSTRUCTION(gelu)
INSTRUCTION(gelu_tanh)
INSTRUCTION(gelu_grad)
INSTRUCTION(gelu_tanh_grad)
INSTRUCTION(dropout)
INSTRUCTION(dropout_shared)
INSTRUCTION(random_uniform)
INSTRUCTION(random_normal)
INSTRUCTION(broadcast)
INSTRUCTION(broadcast_bf16)
INSTRUCTION(broadcast_f16)
INSTRUCTION(normalize)
INSTRUCTION(normalize_shift)
INSTRUCTION(norm_input_grad)
INSTRUCTION(accumulate)
INSTRUCTION(accumulate_centered)
INSTRUCTION(accumulate_moments)
INSTRUCTION(from_u8)
INSTRUCTION(from_i8)
INSTRUCTION(from_u16)
INSTRUCTION(from_i16)
INSTRUCTION(from_i32)
INSTRUCTION(from_u32)
INSTRUCTION(from_i64)
INSTRUCTION(from_u64)
INSTRUCTION(from_f64)
INSTRUCTION(from_bf16)
INSTRUCTION(from_f16)
INSTRUCTION(to_bf16)
INSTRUCTION(to_f16)
INSTRUCTION(round_bf16)
INSTRUCTION(round_f16)
INSTRUCTION(moving_average)
INSTRUCTION(clip)
INSTRUCTION(l1_l2_grad)
INSTRUCTION(sgd)
INSTRUCTION(sgd_momentum)
INSTRUCTION(sgd_nesterov)
INSTRUCTION(adam)
INSTRUCTION(unscale)
INSTRUCTION(keep_if)

#undef UNARY
#undef BINARY
#undef TERNARY
#undef INSTRUCTION
// clang-format on
