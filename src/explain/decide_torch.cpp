// PyTorch prints almost all terms of the sum; what it leaves out (memory of others) follows from them.
#include <fmt/format.h>

#include <algorithm>

#include "explain/decide.h"

namespace plimsoll::engine::explain {
namespace {

constexpr Bytes kMostDevice = 1024 * kGiB;
constexpr double kLargePart = 0.25;  // of the device, to be worth naming

// The terms of PyTorch's sum. What it leaves out is computed.
struct Terms {
  Bytes tried = 0, total = 0, free = 0;
  Bytes others = -1;       // -1: unknown
  Bytes unallocated = -1;  // reserved by PyTorch, but not in use
  bool spilled = false;    // more is allocated than the device has
};

// In a container, PyTorch does not know which of the processes it names is its own: the smallest that holds what
// PyTorch has.
Bytes own_among(const TorchFailure& failure) {
  const Bytes held = failure.allocated.value_or(0) + failure.unallocated.value_or(0);
  Bytes own = 0;
  for (const Process& process : failure.processes)
    if (process.bytes >= held && process.bytes <= kMostDevice && (own == 0 || process.bytes < own)) own = process.bytes;
  return held > 0 ? own : 0;
}

Terms terms_of(const TorchFailure& failure) {
  Terms terms;
  terms.tried = failure.tried.value_or(0);
  terms.total = failure.total.value_or(0);
  terms.free = failure.free.value_or(0);
  if (failure.unallocated) terms.unallocated = *failure.unallocated;
  if (failure.reserved && failure.allocated && *failure.reserved >= *failure.allocated)
    terms.unallocated = *failure.reserved - *failure.allocated;
  terms.spilled = failure.allocated && terms.total > 0 && *failure.allocated > terms.total;
  Bytes named = 0;
  for (const Process& process : failure.processes) named += std::min<Bytes>(process.bytes, kMostDevice);
  if (!failure.in_process) named -= own_among(failure);
  if (failure.in_process && !terms.spilled)
    terms.others = std::max<Bytes>(0, std::max(named, terms.total - terms.free - *failure.in_process));
  else if (failure.reserved && !terms.spilled && failure.free)
    terms.others = std::max<Bytes>(0, terms.total - terms.free - *failure.reserved);
  else if (!failure.processes.empty())
    terms.others = named;
  return terms;
}

void set(Verdict& verdict, Cause cause, Certainty certainty, std::string summary) {
  verdict.cause = cause;
  verdict.certainty = certainty;
  verdict.summary = std::move(summary);
}

void add_figures(Verdict& verdict, const TorchFailure& failure, const Terms& terms) {
  const auto figure = [&](const char* name, const Size& bytes) {
    if (bytes) verdict.figures.push_back({name, *bytes});
  };
  figure("asked for", failure.tried);
  figure("memory of the device", failure.total);
  figure("free", failure.free);
  figure("allocated by PyTorch", failure.allocated);
  figure("reserved by PyTorch", failure.reserved);
  if (terms.unallocated >= 0) verdict.figures.push_back({"reserved but not in use", terms.unallocated});
  figure("in use by this process", failure.in_process);
  figure("other allocations", failure.other);
  if (terms.others >= 0) verdict.figures.push_back({"held by other processes", terms.others});
  for (const Process& process : failure.processes) verdict.figures.push_back({process.name, process.bytes});
}

void larger_than_device(Verdict& verdict, const Terms& terms) {
  set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
      fmt::format("{} were asked for in one piece; the device has {}", format_bytes(terms.tried),
                  format_bytes(terms.total)));
  if (terms.tried / 16 > terms.total)
    verdict.why.push_back("it is many times the device: look for a wrong shape, not for memory");
  verdict.why.push_back("no setting of the allocator and no ended process makes room for it");
  verdict.remedies = {
      "a tensor of this size is often an attention matrix (length x length): use an attention that "
      "does not store it, or shorter inputs",
      "a smaller batch, if the tensor grows with the batch"};
}

void fragmentation(Verdict& verdict, const Terms& terms) {
  set(verdict, Cause::kFragmentation, Certainty::kLikely,
      fmt::format("{} were asked for; {} are free and {} lie unused in PyTorch's pool, but not in one piece",
                  format_bytes(terms.tried), format_bytes(terms.free), format_bytes(terms.unallocated)));
  verdict.why.push_back(fmt::format("{} + {} = {}, enough for the {} asked for", format_bytes(terms.free),
                                    format_bytes(terms.unallocated), format_bytes(terms.free + terms.unallocated),
                                    format_bytes(terms.tried)));
  verdict.remedies = {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "inputs of fewer different sizes"};
}

void others(Verdict& verdict, const Terms& terms) {
  set(verdict, Cause::kOtherProcess, Certainty::kSure,
      fmt::format("{} of the device's {} belong to other processes; without them the {} would fit",
                  format_bytes(terms.others), format_bytes(terms.total), format_bytes(terms.tried)));
  verdict.remedies = {"nvidia-smi or plimsoll top shows who holds the memory",
                      "choose a free device: "
                      "CUDA_VISIBLE_DEVICES"};
}

void excess(Verdict& verdict, const Terms& terms) {
  set(verdict, Cause::kTrueExcess, Certainty::kSure,
      fmt::format("{} more were asked for, but of {} only {} are free", format_bytes(terms.tried),
                  format_bytes(terms.total), format_bytes(terms.free)));
  if (terms.unallocated > 0) {
    const Bytes reach = terms.free + terms.unallocated;
    if (reach < terms.tried)
      verdict.why.push_back(
          fmt::format("expandable_segments cannot help: {} free + {} unused in the pool = {}, {} short of {}",
                      format_bytes(terms.free), format_bytes(terms.unallocated), format_bytes(reach),
                      format_bytes(terms.tried - reach), format_bytes(terms.tried)));
  }
  if (terms.others > 0 && static_cast<double>(terms.others) > 0.05 * static_cast<double>(terms.total))
    verdict.why.push_back(
        fmt::format("other processes hold {}, which is not enough to matter alone", format_bytes(terms.others)));
  verdict.remedies = {"a smaller batch, with gradient accumulation so that training means the same",
                      "gradient checkpointing, or half precision"};
}

void judge(Verdict& verdict, const TorchFailure& failure, const Terms& terms) {
  const bool much_by_others =
      terms.others >= 0 && static_cast<double>(terms.others) > kLargePart * static_cast<double>(terms.total);
  if (terms.spilled) {
    set(verdict, Cause::kTrueExcess, Certainty::kSure,
        fmt::format("PyTorch holds {}, more than the device's {}: the driver of Windows keeps the rest in the host's "
                    "memory",
                    format_bytes(*failure.allocated), format_bytes(terms.total)));
    verdict.remedies = {"a smaller batch or half precision: what is spilled is also slow"};
  } else if (terms.total > 0 && terms.tried > terms.total) {
    larger_than_device(verdict, terms);
  } else if (failure.allowed && terms.tried <= terms.free) {
    set(verdict, Cause::kProcessLimit, Certainty::kSure,
        fmt::format("the program may take {} of the device (set_per_process_memory_fraction)",
                    format_bytes(*failure.allowed)));
    verdict.remedies = {"raise the fraction"};
  } else if (failure.free && terms.tried <= terms.free) {
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        fmt::format("{} were asked for and {} are free, so the figures of PyTorch do not explain it",
                    format_bytes(terms.tried), format_bytes(terms.free)));
    verdict.why.push_back(
        "the driver's memory is in pieces, a quota is set, or another process took memory for a "
        "moment");
    verdict.remedies = {"run nvidia-smi or plimsoll top beside the program",
                        "torch.cuda.memory_summary() at the failure"};
  } else if (terms.unallocated >= 0 && terms.free + terms.unallocated >= terms.tried) {
    fragmentation(verdict, terms);
  } else if (much_by_others && terms.tried <= terms.others + terms.free) {
    others(verdict, terms);
  } else if (failure.device == "MPS" && terms.total > 0) {
    set(verdict, Cause::kTrueExcess, Certainty::kSure,
        fmt::format("{} more were asked for; {} are the most that PyTorch may take of the unified memory",
                    format_bytes(terms.tried), format_bytes(terms.total)));
    verdict.remedies = {"a smaller batch, with gradient accumulation so that training means the same",
                        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes the limit, and the machine may then swap"};
  } else {
    excess(verdict, terms);
  }
}

}  // namespace

std::optional<Verdict> decide_torch(const Facts& facts) {
  if (facts.torch.empty()) return std::nullopt;
  const TorchFailure& failure = facts.torch.front();
  const Terms terms = terms_of(failure);
  Verdict verdict;
  verdict.where = failure.device.empty() ? "GPU" : failure.device;
  verdict.evidence.push_back(failure.seen);
  add_figures(verdict, failure, terms);
  judge(verdict, failure, terms);
  if (terms.total > 0) verdict.limit = terms.total;
  std::vector<int> ranks;
  for (const TorchFailure& other : facts.torch)
    if (std::find(ranks.begin(), ranks.end(), other.seen.stream) == ranks.end()) ranks.push_back(other.seen.stream);
  if (ranks.size() > 1)
    verdict.why.push_back(fmt::format("{} ranks failed; the figures are those of the first", ranks.size()));
  return verdict;
}

}  // namespace plimsoll::engine::explain
