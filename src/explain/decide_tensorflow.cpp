// TensorFlow's allocators keep one pool per device. The sums of a dump (limit, in use, free, largest free) close, and
// what closes them decides.
#include <fmt/format.h>

#include <algorithm>

#include "explain/decide.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMostChunkLines = 8;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool is_pinned(const PoolFailure& pool) {
  return contains(pool.allocator, "host_bfc") || contains(pool.allocator, "pinned");
}

bool is_host(const PoolFailure& pool) {
  return contains(pool.allocator, "cpu") || contains(pool.allocator, "Cpu");
}

// Operations that make a tensor of an array of the calling program.
bool copies_an_array(const std::string& op) {
  return contains(op, "EagerConst") || contains(op, "Dst tensor") || op == "Const";
}

const PoolFailure* best_failure(const std::vector<PoolFailure>& pools) {
  const PoolFailure* best = nullptr;
  for (const PoolFailure& pool : pools) {
    if (pool.harmless) continue;
    const auto figures = [](const PoolFailure& one) { return (one.limit ? 2 : 0) + (one.requested ? 1 : 0); };
    if (best == nullptr || figures(pool) > figures(*best)) best = &pool;
  }
  return best;
}

std::vector<ChunkLine> largest_chunks(const PoolFailure& pool, const std::vector<TensorFailure>& tensors) {
  const auto& counted = pool.totals.count.empty() ? pool.listed.count : pool.totals.count;
  std::vector<ChunkLine> lines;
  for (const auto& [bytes, count] : counted) lines.push_back({bytes, count, {}});
  std::stable_sort(lines.begin(), lines.end(), [](const ChunkLine& a, const ChunkLine& b) {
    return static_cast<double>(a.bytes) * static_cast<double>(a.count) >
           static_cast<double>(b.bytes) * static_cast<double>(b.count);
  });
  if (lines.size() > kMostChunkLines) lines.resize(kMostChunkLines);
  for (ChunkLine& line : lines)
    for (const TensorFailure& tensor : tensors)
      if (tensor.bytes && align_up(std::min<Bytes>(*tensor.bytes, INT64_MAX / 2)) == line.bytes && line.what.empty())
        line.what.push_back(fmt::format("{} of {}, as the tensor that failed", tensor.dtype, shape_words(tensor.dims)));
  return lines;
}

struct Sums {
  Bytes asked = 0, limit = 0, used = 0, left = 0;
  bool known = false;
};

Sums sums_of(const PoolFailure& pool) {
  Sums sums;
  sums.asked = pool.requested.value_or(0);
  sums.known = pool.limit && pool.in_use && pool.requested && *pool.limit > 0 && *pool.in_use <= *pool.limit;
  if (!sums.known) return sums;
  sums.limit = *pool.limit;
  sums.used = *pool.in_use;
  sums.left = sums.limit - sums.used;
  return sums;
}

void set(Verdict& verdict, Cause cause, Certainty certainty, std::string summary) {
  verdict.cause = cause;
  verdict.certainty = certainty;
  verdict.summary = std::move(summary);
}

void pinned(Verdict& verdict, const PoolFailure& pool) {
  set(verdict, Cause::kPinnedMemory, Certainty::kSure,
      fmt::format("the allocator {} holds host memory that is pinned for copies to the GPU", pool.allocator));
  verdict.where = "host";
  verdict.why.push_back("the GPU's own memory is not what ran out");
  if (pool.limit == Size{64 * kGiB}) verdict.why.push_back("64 GiB is TensorFlow's own cap for pinned memory");
  verdict.remedies = {"smaller prefetch and shuffle buffers, or arrays that are read in parts",
                      "TF_GPU_HOST_MEM_LIMIT_IN_MB=N raises TensorFlow's cap"};
}

void data_on_device(Verdict& verdict, Bytes bytes, Certainty certainty) {
  set(verdict, Cause::kDataOnDevice, certainty,
      fmt::format("an array of {} was copied to the device as a whole, whatever the batch size is",
                  format_bytes(bytes)));
  verdict.remedies = {"feed the data in batches: tf.data.Dataset.from_generator, keras.utils.Sequence, or files",
                      "plimsoll fit reads the data from files batch by batch: --data x.npy,y.npy"};
}

void true_excess(Verdict& verdict, const Sums& sums, const PoolFailure& pool) {
  set(verdict, Cause::kTrueExcess, Certainty::kSure,
      fmt::format("{} more was asked for, but of {} only {} was left", format_bytes(sums.asked),
                  format_bytes(sums.limit), format_bytes(sums.left)));
  verdict.why.push_back(fmt::format("{} in use + {} asked for = {}, {} above the limit", format_bytes(sums.used),
                                    format_bytes(sums.asked), format_bytes(sums.used + sums.asked),
                                    format_bytes(sums.used + sums.asked - sums.limit)));
  if (pool.max_in_use && *pool.max_in_use > sums.used)
    verdict.why.push_back(
        fmt::format("the largest use since the start was {}, maybe of another model", format_bytes(*pool.max_in_use)));
  verdict.remedies = {
      fmt::format("plimsoll plan MODEL --batch-size N --budget {}   what fits there, and at what price", sums.limit),
      "a smaller batch, with gradient accumulation so that training means the same",
      "recompute of activations, or half precision"};
}

void fragmentation(Verdict& verdict, const Sums& sums, const PoolFailure& pool) {
  set(verdict, Cause::kFragmentation, Certainty::kSure,
      fmt::format("{} were asked for in one piece; {} are free in {} pieces, the largest of {}",
                  format_bytes(sums.asked), format_bytes(pool.free_total), pool.free_count,
                  format_bytes(pool.free_largest)));
  verdict.remedies = {"TF_GPU_ALLOCATOR=cuda_malloc_async can move what lies between the pieces",
                      "batches of one size: a smaller last batch leaves other pieces (drop_remainder=True)",
                      "plimsoll fit places every tensor before the run, so nothing fragments"};
}

void other_process(Verdict& verdict, const std::string& why, Certainty certainty) {
  set(verdict, Cause::kOtherProcess, certainty, why);
  verdict.remedies = {"nvidia-smi or plimsoll top shows who holds the memory",
                      "end the other processes, or an earlier notebook kernel that still runs"};
}

bool is_validation(const TensorFailure& tensor) {
  return contains(tensor.op, "Gather") && tensor.dims.size() >= 2 && tensor.bytes && *tensor.bytes > 256 * kMiB;
}

void validation(Verdict& verdict, const TensorFailure& tensor, Certainty certainty) {
  set(verdict, Cause::kValidation, certainty,
      fmt::format("{} gathers {} samples at once, {}: that is what validation_split does with a data set on the "
                  "device",
                  tensor.op, count_words(tensor.dims[0]), format_bytes(*tensor.bytes)));
  verdict.remedies = {"pass validation_data instead of validation_split, and both as datasets that are read in batches",
                      "plimsoll fit --validation-split 0.1 reads both parts batch by batch"};
}

// The request is larger than all of the pool.
void larger_than_limit(Verdict& verdict, const Sums& sums, const PoolFailure& pool) {
  const auto times = static_cast<double>(sums.asked) / static_cast<double>(sums.limit);
  if (copies_an_array(pool.op) || sums.used < sums.limit / 20) {
    data_on_device(verdict, sums.asked, copies_an_array(pool.op) ? Certainty::kSure : Certainty::kLikely);
    verdict.why.push_back(
        fmt::format("almost nothing else is in use ({}), so this is no activation of a batch: it is "
                    "an array that the program passed",
                    format_bytes(sums.used)));
    return;
  }
  set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
      fmt::format("one tensor of {} cannot fit into {}, whatever else is freed", format_bytes(sums.asked),
                  format_bytes(sums.limit)));
  if (times >= 16)
    verdict.why.push_back(fmt::format("it is {:.0f} times the device: look for a wrong shape, not for memory", times));
  verdict.remedies = {"find the layer that makes it: plimsoll plan MODEL --batch-size N lists the output of each",
                      "a smaller batch, if the tensor grows with the batch"};
}

const TensorFailure* gathered(const Facts& facts) {
  for (const TensorFailure& tensor : facts.tensors)
    if (is_validation(tensor)) return &tensor;
  return nullptr;
}

void add_tensor_evidence(Verdict& verdict, const Facts& facts) {
  for (const TensorFailure& tensor : facts.tensors) {
    verdict.evidence.push_back(tensor.seen);
    if (tensor.bytes)
      verdict.why.push_back(fmt::format("the tensor that failed: {} of {} = {} bytes", tensor.dtype,
                                        shape_words(tensor.dims), count_words(*tensor.bytes)));
    for (const int64_t dim : tensor.dims)
      if (dim >= 100'000 && tensor.dims.size() == 2)
        verdict.why.push_back(
            fmt::format("one of its sizes is {}: if that is a number of classes or words, check "
                        "the vocabulary",
                        count_words(dim)));
    break;
  }
}

void add_figures(Verdict& verdict, const PoolFailure& pool) {
  const auto figure = [&](const char* name, const Size& bytes) {
    if (bytes) verdict.figures.push_back({name, *bytes});
  };
  figure("asked for", pool.requested);
  figure("limit of the allocator", pool.limit);
  figure("in use", pool.in_use);
  if (pool.limit && pool.in_use && *pool.in_use <= *pool.limit)
    figure("left under the limit", *pool.limit - *pool.in_use);
  if (pool.free_count > 0) {
    figure("free pieces, together", pool.free_total);
    figure("largest free piece", pool.free_largest);
  }
  figure("taken from the device", pool.region);
  figure("largest use so far", pool.max_in_use);
}

const SizedFact* small_device(const Facts& facts) {
  for (const SizedFact& device : facts.devices) {
    const Bytes total = facts.device_totals.empty() ? 0 : facts.device_totals.front().bytes;
    if (device.bytes < 512 * kMiB || (total > 0 && device.bytes < total / 4)) return &device;
  }
  return nullptr;
}

// TensorFlow gives an allocator more than the card has only with managed memory.
void add_managed_memory(Verdict& verdict, const Facts& facts, const Sums& sums) {
  const SizedFact* total = nullptr;
  for (const SizedFact& device : facts.device_totals)
    if (total == nullptr || device.bytes > total->bytes) total = &device;
  if (!sums.known || total == nullptr || sums.limit <= total->bytes) return;
  verdict.figures.push_back({"memory of the card", total->bytes});
  verdict.why.push_back(fmt::format(
      "the allocator's limit of {} is above the card's {}: managed memory (TF_FORCE_UNIFIED_MEMORY or a fraction above "
      "1), whose pages moved between card and host all the time",
      format_bytes(sums.limit), format_bytes(total->bytes)));
  verdict.evidence.push_back(total->seen);
  verdict.limit = total->bytes;
  if (verdict.cause == Cause::kTrueExcess)
    verdict.remedies.front() =
        fmt::format("plimsoll plan MODEL --batch-size N --budget {}   what fits on the card itself, and at what price",
                    total->bytes);
}

void decide_device_pool(Verdict& verdict, const Facts& facts, const PoolFailure& pool, const Sums& sums) {
  const Bytes largest = verdict.chunks.empty() ? 0 : verdict.chunks.front().bytes;
  if (const SizedFact* device = small_device(facts)) {
    other_process(
        verdict,
        fmt::format("TensorFlow found only {} of the device's memory free at its start", format_bytes(device->bytes)),
        Certainty::kLikely);
    verdict.why.push_back("on a board whose GPU shares the host's memory, the host's programs hold it");
    verdict.evidence.insert(verdict.evidence.begin(), device->seen);
    verdict.figures.push_back({"memory of the device at the start", device->bytes});
  } else if (!facts.device_refusals.empty() && sums.known && sums.asked <= sums.left) {
    other_process(verdict,
                  fmt::format("the allocator may take {} more, but the device refused {}", format_bytes(sums.left),
                              format_bytes(facts.device_refusals.front().bytes)),
                  Certainty::kSure);
    verdict.evidence.insert(verdict.evidence.begin(), facts.device_refusals.front().seen);
    if (pool.region)
      verdict.why.push_back(fmt::format("of its limit of {} the pool got {} from the device", format_bytes(sums.limit),
                                        format_bytes(*pool.region)));
  } else if (const TensorFailure* tensor = gathered(facts); tensor != nullptr) {
    validation(verdict, *tensor, facts.validates ? Certainty::kSure : Certainty::kLikely);
  } else if (sums.known && sums.asked > sums.limit) {
    larger_than_limit(verdict, sums, pool);
  } else if (copies_an_array(pool.op) && sums.known && std::max(largest, sums.asked) > sums.limit / 4) {
    data_on_device(verdict, std::max(largest, sums.asked), Certainty::kSure);
  } else if (sums.known && pool.free_count > 0 && pool.free_total >= sums.asked && pool.free_largest < sums.asked &&
             sums.asked <= sums.left) {
    fragmentation(verdict, sums, pool);
  } else if (sums.known && sums.asked > sums.left) {
    true_excess(verdict, sums, pool);
  } else if (sums.known) {
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        fmt::format("{} were asked for while {} of the limit were left", format_bytes(sums.asked),
                    format_bytes(sums.left)));
    verdict.why.push_back(
        "either the free part is in pieces (the dump does not list them), or another process holds "
        "what the limit promises");
    verdict.remedies = {"keep the whole dump: the lines 'Free at' say how large the pieces are",
                        "run nvidia-smi or plimsoll top beside the training"};
  } else if (pool.requested && *pool.requested > 256 * kGiB) {
    set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
        fmt::format("{} in one tensor is more than any device has: a wrong shape, not a limit",
                    format_bytes(*pool.requested)));
    verdict.remedies = {"print the shapes of the inputs; one size is probably a product or in the wrong place"};
  } else {
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        pool.requested ? fmt::format("{} were asked for; the log has no limit and nothing about what was in use",
                                     format_bytes(*pool.requested))
                       : std::string("the dump has no request and no statistics"));
    verdict.remedies = {"keep the lines after 'ran out of memory': Limit, InUse and the chunks"};
  }
}

std::optional<Verdict> decide_tensor(const Facts& facts) {
  if (facts.tensors.empty()) return std::nullopt;
  const TensorFailure& tensor = facts.tensors.front();
  Verdict verdict;
  verdict.where = contains(tensor.device, "CPU") ? "host" : "GPU";
  verdict.of_keras = true;
  if (tensor.bytes) verdict.figures.push_back({"asked for", *tensor.bytes});
  const Bytes device = facts.devices.empty() ? 0 : facts.devices.front().bytes;
  if (device > 0) {
    verdict.figures.push_back({"memory of the device at the start", device});
    verdict.limit = device;
  }
  if (const TensorFailure* split = gathered(facts)) {
    validation(verdict, *split, facts.validates ? Certainty::kSure : Certainty::kLikely);
  } else if (tensor.bytes && device > 0 && *tensor.bytes > device) {
    set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
        fmt::format("one tensor of {} cannot fit into {}", format_bytes(*tensor.bytes), format_bytes(device)));
    verdict.remedies = {"find the layer that makes it: plimsoll plan MODEL --batch-size N lists the output of each"};
  } else if (tensor.bytes && *tensor.bytes > 256 * kGiB) {
    set(verdict, Cause::kImpossibleTensor, Certainty::kSure,
        fmt::format("{} in one tensor is more than any device has: a wrong shape", format_bytes(*tensor.bytes)));
  } else if (const SizedFact* small = small_device(facts)) {
    other_process(verdict, fmt::format("TensorFlow found only {} free at its start", format_bytes(small->bytes)),
                  Certainty::kLikely);
    verdict.evidence.push_back(small->seen);
  } else {
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        "a tensor could not be allocated; the log does not say what else was in use");
    verdict.remedies = {"keep the lines that TensorFlow prints before it: the allocator's dump",
                        "plimsoll plan MODEL --batch-size N says what the model needs"};
  }
  add_tensor_evidence(verdict, facts);
  return verdict;
}

}  // namespace

std::optional<Verdict> decide_pool(const Facts& facts) {
  const PoolFailure* pool = best_failure(facts.pools);
  if (!facts.pinned_refusals.empty() && (pool == nullptr || is_pinned(*pool))) {
    Verdict verdict;
    set(verdict, Cause::kPinnedMemory, Certainty::kSure,
        fmt::format("{} of pinned host memory were refused", format_bytes(facts.pinned_refusals.front().bytes)));
    verdict.where = "host";
    verdict.figures.push_back({"asked for", facts.pinned_refusals.front().bytes});
    for (const SizedFact& refusal : facts.pinned_refusals)
      if (verdict.evidence.size() < 3) verdict.evidence.push_back(refusal.seen);
    verdict.why.push_back("the GPU's own memory is not what ran out: WSL and drivers limit what may be pinned");
    verdict.remedies = {"smaller prefetch and shuffle buffers",
                        "under WSL: raise memory= in .wslconfig; half of it can be pinned"};
    return verdict;
  }
  if (pool == nullptr) return decide_tensor(facts);
  Verdict verdict;
  verdict.where = is_host(*pool) || is_pinned(*pool) ? "host" : "GPU";
  verdict.of_keras = true;
  verdict.evidence.push_back(pool->seen);
  if (pool->stats) verdict.evidence.push_back(*pool->stats);
  add_figures(verdict, *pool);
  verdict.chunks = largest_chunks(*pool, facts.tensors);
  const Sums sums = sums_of(*pool);
  if (sums.known && !is_host(*pool)) verdict.limit = sums.limit;
  if (is_pinned(*pool)) {
    pinned(verdict, *pool);
  } else if (is_host(*pool) && sums.known && sums.asked <= sums.left) {
    set(verdict, Cause::kProcessLimit, Certainty::kLikely,
        fmt::format("TensorFlow's limit of {} was not reached ({} in use): the system refused {}",
                    format_bytes(sums.limit), format_bytes(sums.used), format_bytes(sums.asked)));
    verdict.why.push_back("on a CPU the advice to set TF_GPU_ALLOCATOR does not apply");
    verdict.remedies = {"ulimit -v and the cgroup's memory.max show the limits of the process"};
  } else if (is_host(*pool) && sums.known) {
    true_excess(verdict, sums, *pool);
    verdict.cause = Cause::kHostMemory;
  } else {
    decide_device_pool(verdict, facts, *pool, sums);
    add_managed_memory(verdict, facts, sums);
  }
  add_tensor_evidence(verdict, facts);
  return verdict;
}

std::optional<Verdict> decide_disguise(const Facts& facts) {
  const bool refused = !facts.device_refusals.empty() || !facts.cuda_oom.empty();
  if (facts.disguises.empty() && !refused) return std::nullopt;
  Verdict verdict;
  verdict.where = "GPU";
  for (const SizedFact& refusal : facts.device_refusals)
    if (verdict.evidence.size() < 3) {
      verdict.evidence.push_back(refusal.seen);
      verdict.figures.push_back({"refused by the device", refusal.bytes});
    }
  if (facts.disguises.empty()) {
    for (const NamedFact& code : facts.cuda_oom)
      if (verdict.evidence.size() < 3) verdict.evidence.push_back(code.seen);
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        "the device refused memory; the log does not say who holds it");
    verdict.remedies = {"nvidia-smi or plimsoll top shows who holds the memory"};
    return verdict;
  }
  const NamedFact& disguise = facts.disguises.front();
  verdict.evidence.push_back(disguise.seen);
  verdict.disguised = true;
  verdict.of_keras = true;
  if (disguise.name == "Dst tensor") {
    set(verdict, Cause::kTrueExcess, Certainty::kLikely,
        "\"Dst tensor is not initialized\" means that the copy to the GPU found no memory for its target");
    verdict.remedies = {"a smaller batch, or data that are fed in batches instead of one array",
                        "check that no other process holds the GPU: plimsoll top"};
    return verdict;
  }
  const bool sure = refused || disguise.name == "library allocation";
  set(verdict, sure ? Cause::kOtherProcess : Cause::kNotEnough, sure ? Certainty::kLikely : Certainty::kPossible,
      sure ? "cuDNN or cuBLAS could not be started because nothing of the device's memory was left for it"
           : "cuDNN could not be started: usually because no memory was left, but a wrong version looks the same");
  if (disguise.name == "library allocation") {
    verdict.cause = Cause::kTrueExcess;
    verdict.summary = "cuDNN or cuBLAS asked for memory of the device, and nothing was left";
  }
  verdict.remedies = {"TF_FORCE_GPU_ALLOW_GROWTH=true leaves memory for the libraries",
                      "end other processes on the GPU: nvidia-smi or plimsoll top shows them"};
  if (!sure) verdict.remedies.push_back("compare the versions of cuDNN and the driver with those TensorFlow asks for");
  return verdict;
}

}  // namespace plimsoll::engine::explain
