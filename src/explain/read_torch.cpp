// PyTorch's messages: up to 2.0 ("already allocated", "reserved in total by PyTorch"), from 2.1 on ("has a total
// capacity of", "of which ... is free"; 2.1 itself misspells "capacty"), Apple's MPS, and host memory.
#include "explain/cursor.h"
#include "explain/facts.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMessage = 1400;

// "(GPU 0; 14.56 GiB total capacity; 650.59 MiB already allocated; 1.31 GiB free; 1.01 GiB reserved in total by
// PyTorch)"
void read_old(Cursor cursor, TorchFailure& failure) {
  for (int part = 0; part < 6; ++part) {
    const auto bytes = cursor.size();
    if (!bytes) break;
    if (cursor.eat("total capacity"))
      failure.total = bytes;
    else if (cursor.eat("already allocated"))
      failure.allocated = bytes;
    else if (cursor.eat("free"))
      failure.free = bytes;
    else if (cursor.eat("reserved in total"))
      failure.reserved = bytes;
    else if (cursor.eat("cached"))
      failure.reserved = bytes;  // up to 1.3: "cached" is what lies unused
    else if (cursor.eat("allowed"))
      failure.allowed = bytes;
    cursor.eat(";");
  }
}

void read_processes(Cursor cursor, TorchFailure& failure) {
  while (failure.processes.size() < 32 && cursor.find("process", 1200)) {
    const auto id = cursor.whole();
    if (!id || !cursor.eat("has")) continue;
    const auto bytes = cursor.size();
    if (bytes && cursor.eat("memory in use"))
      failure.processes.push_back({"process " + std::to_string(*id), *bytes, 0});
  }
}

void read_new(Cursor cursor, TorchFailure& failure) {
  failure.total = cursor.size();
  if (cursor.find("of which", 24)) failure.free = cursor.size();
  read_processes(cursor, failure);
  if (Cursor own = cursor; own.find("this process has", 900)) failure.in_process = own.size();
  if (Cursor allocated = cursor; allocated.find("of the allocated memory", 900)) {
    failure.allocated = allocated.size();
    if (allocated.find("and", 60)) failure.unallocated = allocated.size();
  }
}

void read_tried(Facts& facts, const Window& window) {
  // Messages of several ranks, or of one log twice, may follow each other: this one ends where the next begins.
  Cursor message(window.after);
  message.eat("tried to allocate");
  const bool more = message.find("tried to allocate", kMessage);
  Cursor cursor(more ? window.after.substr(0, message.at()) : window.after);
  cursor.eat("tried to allocate");
  TorchFailure failure;
  failure.seen = window.seen;
  failure.tried = cursor.size();
  if (!failure.tried) return;
  Cursor head = cursor;
  if (head.eat("(gpu") || head.eat(". gpu")) {
    const auto number = head.whole();
    failure.device = "GPU" + (number ? " " + std::to_string(*number) : std::string());
  }
  if (Cursor old = head; old.eat(";")) {
    read_old(old, failure);
  } else if (Cursor later = cursor; later.find("has a total capac", 60)) {
    later.word("y");
    if (later.find("of", 12)) read_new(later, failure);
  }
  if (Cursor before(window.before); before.find("mps backend out of memory")) {
    failure.device = "MPS";
    if (before.find("mps allocated:", 40)) failure.allocated = before.size();
    if (before.find("other allocations:", 40)) failure.other = before.size();
    if (before.find("max allowed:", 40)) failure.total = before.size();
  }
  if (failure.total || failure.device == "MPS") add_fact(facts.torch, std::move(failure));
}

// "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes."
void read_host(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("you tried to allocate", 80)) return;
  if (const auto bytes = cursor.size()) add_fact(facts.torch_host, {window.seen, *bytes});
}

void read_worker(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (!cursor.find("by signal:", 80)) return;
  if (cursor.eat("bus error"))
    add_fact(facts.shared_memory, {window.seen, "a worker of DataLoader ended with a bus error"});
  else if (cursor.eat("killed"))
    add_fact(facts.killed, {window.seen, "a worker of DataLoader"});
}

// As the shell and the kernel write it; prose has "bus errors" too.
void read_bus_error(Facts& facts, const Window& window) {
  if (!window.after.starts_with("Bus error") || window.after.substr(9).starts_with("s")) return;
  add_fact(facts.shared_memory, {window.seen, "bus error"});
}

void read_shared_file(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (cursor.find("/torch_", 40) && cursor.find("no space left", 120))
    add_fact(facts.shared_memory, {window.seen, "/dev/shm is full"});
}

void read_shm_file(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  if (cursor.find("/dev/shm", 200)) add_fact(facts.shared_memory, {window.seen, "/dev/shm is full"});
}

void read_shm_hint(Facts& facts, const Window& window) {
  add_fact(facts.shared_memory, {window.seen, "workers are out of shared memory"});
}

void read_cuda_code(Facts& facts, const Window& window) {
  add_fact(facts.cuda_oom, {window.seen, ""});
}

}  // namespace

void add_torch_phrases(std::vector<Phrase>& phrases) {
  const Phrase ours[] = {
      {"tried to allocate", kMessage, read_tried},        {"defaultcpuallocator", 220, read_host},
      {"dataloader worker (pid", 140, read_worker},       {"bus error", 40, read_bus_error},
      {"unable to write to file", 260, read_shared_file}, {"no space left on device", 220, read_shm_file},
      {"out of shared memory", 40, read_shm_hint},        {"cuda error: out of memory", 60, read_cuda_code},
      {"cuda_error_out_of_memory", 60, read_cuda_code},   {"cudaerrormemoryallocation", 60, read_cuda_code},
      {"cuda out of memory", 60, read_cuda_code},
  };
  phrases.insert(phrases.end(), std::begin(ours), std::end(ours));
}

}  // namespace plimsoll::engine::explain
