#include "backends/cuda/driver/room.h"

#include <fmt/format.h>

namespace plimsoll::engine::cuda {
namespace {

// Free memory as the runtime reports it, if this process already has a context. Creating one only to ask would allocate
// memory.
Bytes free_bytes(const Context& context, const CardMemory& memory) {
  size_t free = 0, total = 0;
  if (context.stream != nullptr && cudaMemGetInfo(&free, &total) == cudaSuccess) return static_cast<Bytes>(free);
  return memory.free;
}

Error lacking(const Context& context, std::string what, const CardMemory& memory) {
  const Bytes free = free_bytes(context, memory), held = context.held.now();
  Error error{ErrorCode::kOutOfMemory, std::move(what), {}, {}};
  error.fact(fmt::format("free now: {} of {}; this process holds {}", format_bytes(free),
                         format_bytes(context.card.memory_bytes), format_bytes(held)));
  for (const std::string& holder : memory.holders) error.fact("held by " + holder);
  if (memory.holders.empty()) error.fact("the driver does not say which processes hold the rest");
  if (const Bytes most = (free + held) / kMiB; most * kMiB > context.card.context_bytes)
    error.remedy(fmt::format("--budget {}MiB   the free memory plus what this process holds", most));
  return error.remedy("plimsoll doctor   lists the processes that hold GPU memory")
      .remedy("leave out --budget to plan for the memory that is free");
}

}  // namespace

Status check_room_for_context(const Context& context) {
  const CardMemory memory = card_memory(context.ordinal);
  if (memory.total == 0 || memory.free >= context.card.context_bytes)
    return {};  // a total of 0 means that NVML is missing
  return fail(lacking(context,
                      fmt::format("{} has too little free memory to start: the driver and its libraries need {}",
                                  context.card.name, format_bytes(context.card.context_bytes)),
                      memory));
}

Status check_room(const Context& context, Bytes bytes) {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};  // the next call on the card will report the error
  if (static_cast<Bytes>(free) + context.held.now() >= bytes) return {};
  return fail(lacking(
      context,
      fmt::format("the plan needs {} on {}, which has less than that free", format_bytes(bytes), context.card.name),
      card_memory(context.ordinal)));
}

Error no_room(const Context& context, Bytes wanted, const std::string& purpose) {
  return lacking(context, fmt::format("{} does not have {} free {}", context.card.name, format_bytes(wanted), purpose),
                 card_memory(context.ordinal));
}

}  // namespace plimsoll::engine::cuda
