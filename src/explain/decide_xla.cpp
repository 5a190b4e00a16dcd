// XLA names what a program needs before it runs: parameters, outputs and temporaries.
#include <fmt/format.h>

#include <algorithm>

#include "explain/decide.h"

namespace plimsoll::engine::explain {
namespace {

constexpr Bytes kSmall = kGiB;  // a program this small is not what fills a device

void set(Verdict& verdict, Cause cause, Certainty certainty, std::string summary) {
  verdict.cause = cause;
  verdict.certainty = certainty;
  verdict.summary = std::move(summary);
}

void add_figures(Verdict& verdict, const XlaFailure& failure) {
  const auto figure = [&](const char* name, const Size& bytes) {
    if (bytes) verdict.figures.push_back({name, *bytes});
  };
  figure("asked for", failure.requested);
  figure("used by the program", failure.used);
  figure("memory of the device", failure.capacity);
  figure("above it", failure.exceeded);
  figure("parameters", failure.parameters);
  figure("outputs", failure.outputs);
  figure("temporaries", failure.temporaries);
  figure("the program, together", failure.total);
}

void tpu(Verdict& verdict, const XlaFailure& failure) {
  set(verdict, Cause::kTrueExcess, Certainty::kSure,
      fmt::format("the compiled program needs {} of {}", format_bytes(*failure.used), format_bytes(*failure.capacity)));
  verdict.limit = failure.capacity;
  if (failure.recomputes) verdict.why.push_back("labels with .remat show that recompute is on already, and not enough");
  verdict.remedies = {"a smaller batch or shorter inputs per device", "shard the largest buffers over more devices"};
}

void outputs_dominate(Verdict& verdict, const XlaFailure& failure) {
  set(verdict, Cause::kTrueExcess, Certainty::kSure,
      fmt::format("the program's outputs take {} of its {}", format_bytes(*failure.outputs),
                  format_bytes(*failure.total)));
  verdict.remedies = {"return fewer arrays from the compiled function, or smaller ones",
                      "donate the inputs (donate_argnums) so that outputs take their place"};
}

}  // namespace

std::optional<Verdict> decide_xla(const Facts& facts) {
  if (facts.xla.empty()) return std::nullopt;
  const auto figures = [](const XlaFailure& failure) {
    return (failure.tpu ? 4 : 0) + (failure.total ? 2 : 0) + (failure.requested ? 1 : 0);
  };
  const XlaFailure& failure =
      *std::max_element(facts.xla.begin(), facts.xla.end(),
                        [&](const XlaFailure& a, const XlaFailure& b) { return figures(a) < figures(b); });
  if (!failure.requested && !failure.tpu) return std::nullopt;  // sums alone are no failure
  Verdict verdict;
  verdict.where = failure.tpu ? "TPU" : "GPU";
  verdict.evidence.push_back(failure.seen);
  if (failure.totals) verdict.evidence.push_back(*failure.totals);
  add_figures(verdict, failure);
  for (const auto& [shape, bytes] : failure.buffers) verdict.chunks.push_back({bytes, 1, {shape}});
  if (verdict.chunks.size() > 8) verdict.chunks.resize(8);
  if (failure.tpu) {
    tpu(verdict, failure);
  } else if (failure.total && *failure.total < kSmall && *failure.requested < kSmall) {
    set(verdict, Cause::kOtherProcess, Certainty::kLikely,
        fmt::format("the program needs {} in all, so the memory is held elsewhere", format_bytes(*failure.total)));
    verdict.why.push_back("JAX takes three quarters of the device at its start: a second process finds little left");
    verdict.remedies = {"nvidia-smi or plimsoll top shows who holds the memory",
                        "XLA_PYTHON_CLIENT_PREALLOCATE=false, or XLA_PYTHON_CLIENT_MEM_FRACTION=.40 per process"};
  } else if (failure.total && failure.outputs && *failure.outputs > *failure.total / 5 * 2 &&
             *failure.outputs >= failure.temporaries.value_or(0)) {
    outputs_dominate(verdict, failure);
  } else if (failure.total) {
    set(verdict, Cause::kTrueExcess, Certainty::kLikely,
        fmt::format("the program needs {}, of which temporaries take {}", format_bytes(*failure.total),
                    format_bytes(failure.temporaries.value_or(0))));
    verdict.remedies = {"a smaller batch", "jax.checkpoint around the layers: recompute instead of keeping"};
  } else if (*failure.requested > 256 * kGiB) {
    set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
        fmt::format("{} in one piece is more than any device has: a wrong shape", format_bytes(*failure.requested)));
  } else {
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        fmt::format("{} were refused; the log says neither what the device has nor what was in use",
                    format_bytes(*failure.requested)));
    verdict.remedies = {"keep the lines after it: 'BufferAssignment' and 'Peak buffers'",
                        "jax.profiler.save_device_memory_profile shows who holds the memory"};
  }
  return verdict;
}

}  // namespace plimsoll::engine::explain
