#include "backends/cuda/driver/room.h"

#include <fmt/format.h>

namespace plimsoll::engine::cuda {
namespace {

// What is free, by the runtime where this process has a context: making one to ask would take memory.
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
  if (memory.holders.empty()) error.fact("the driver does not say who holds the rest");
  if (const Bytes most = (free + held) / kMiB; most * kMiB > context.card.context_bytes)
    error.remedy(fmt::format("--budget {}MiB   what is free and what this process holds", most));
  return error.remedy("plimsoll doctor   names the processes that hold memory there")
      .remedy("without --budget a plan is made for what is free");
}

}  // namespace

Status check_room_for_context(const Context& context) {
  const CardMemory memory = card_memory(context.ordinal);
  if (memory.total == 0 || memory.free >= context.card.context_bytes) return {};  // 0: nobody to ask
  return fail(lacking(context,
                      fmt::format("{} has no room for a process: the driver and its libraries take {}",
                                  context.card.name, format_bytes(context.card.context_bytes)),
                      memory));
}

Status check_room(const Context& context, Bytes bytes) {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};  // whoever uses the card next will say why
  if (static_cast<Bytes>(free) + context.held.now() >= bytes) return {};
  return fail(lacking(
      context,
      fmt::format("the plan needs {} of {}, and there is no room for it", format_bytes(bytes), context.card.name),
      card_memory(context.ordinal)));
}

Error no_room(const Context& context, Bytes wanted, const std::string& purpose) {
  return lacking(context, fmt::format("{} has no {} free {}", context.card.name, format_bytes(wanted), purpose),
                 card_memory(context.ordinal));
}

}  // namespace plimsoll::engine::cuda
