#include "shrink/lite/interpreter.h"

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/printable.h"
#include "shrink/lite/kernels.h"

namespace plimsoll::engine::lite {
namespace {

constexpr Bytes kAlign = 64;

MakeKernel find_kernel(Op op) {
  for (const auto list : {window_kernels(), matrix_kernels(), elementwise_kernels(), movement_kernels()})
    for (const KernelRow& row : list)
      if (row.op == op) return row.make;
  return nullptr;
}

std::byte* aligned(std::byte* memory) {
  return memory + (kAlign - static_cast<Bytes>(reinterpret_cast<uintptr_t>(memory) % kAlign)) % kAlign;
}

std::string where(const Prepare& p) {
  return fmt::format("{} ({})", name_of(p.node.op),
                     p.node.outputs.empty() ? "no output" : printable(p.model.tensor(p.node.outputs[0]).name));
}

}  // namespace

Error bad_operator(const Prepare& p, const std::string& what) {
  return Error{ErrorCode::kNotAKerasFile, "the .tflite model is damaged", {fmt::format("{}: {}", where(p), what)}, {}};
}

Error not_supported(const Prepare& p, const std::string& what) {
  return Error{ErrorCode::kUnsupported, "", {fmt::format("{}: {}", where(p), what)}, {}};
}

Result<std::vector<int64_t>> constant_list(const Prepare& p, size_t input) {
  if (!p.has(input)) return fail(bad_operator(p, fmt::format("input {} is missing", input)));
  const Tensor& t = p.in(input);
  if (!t.constant()) return fail(not_supported(p, fmt::format("input {} is not a constant", input)));
  std::vector<int64_t> list;
  if (t.type == Type::kInt32)
    for (const int32_t x : t.as<int32_t>()) list.push_back(x);
  else if (t.type == Type::kInt64)
    for (const int64_t x : t.as<int64_t>()) list.push_back(x);
  else
    return fail(bad_operator(p, fmt::format("input {} is not a list of integers", input)));
  return list;
}

Status need_inputs(const Prepare& p, size_t least, size_t most) {
  if (p.inputs() < least || p.inputs() > most || p.node.outputs.size() != 1)
    return fail(bad_operator(p, fmt::format("{} inputs and {} outputs", p.inputs(), p.node.outputs.size())));
  for (size_t i = 0; i < least; ++i)
    if (!p.has(i)) return fail(bad_operator(p, fmt::format("input {} is missing", i)));
  return {};
}

Status need_shape(const Prepare& p, const std::vector<int64_t>& shape) {
  const auto& found = p.out().shape;
  if (!std::equal(found.begin(), found.end(), shape.begin(), shape.end()))
    return fail(bad_operator(
        p, fmt::format("the output is [{}], and [{}] would fit", fmt::join(found, ","), fmt::join(shape, ","))));
  return {};
}

void widen_constants(Model& model) {
  std::vector<Operator> kept;
  for (Operator& node : model.operators) {
    const bool widens = node.op == Op::kDequantize && node.inputs.size() == 1 && node.outputs.size() == 1 &&
                        node.inputs[0] >= 0 && model.tensor(node.inputs[0]).constant() &&
                        model.tensor(node.inputs[0]).type == Type::kFloat16;
    Prepare p{model, node};
    const auto kernel = widens ? find_kernel(node.op)(p) : Result<Kernel>(fail(ErrorCode::kInternal, ""));
    if (!kernel) {
      kept.push_back(std::move(node));
      continue;
    }
    std::vector<std::byte> wide(static_cast<size_t>(model.tensor(node.outputs[0]).bytes()));
    Buffers b;
    b.at.resize(model.tensors.size());
    b.at[static_cast<size_t>(node.inputs[0])] = model.tensor(node.inputs[0]).data.data();
    b.at[static_cast<size_t>(node.outputs[0])] = wide.data();
    (*kernel)(b);
    model.tensor(node.outputs[0]).data = std::move(wide);
    model.tensor(node.inputs[0]).data = {};
  }
  model.operators = std::move(kept);
}

Result<Program> Program::create(const Model& model, const std::string& name, bool keep) {
  Program program;
  program.model_ = &model;
  std::set<std::string> refused;
  for (const Operator& node : model.operators) {
    Prepare p{model, node};
    const MakeKernel make = find_kernel(node.op);
    Result<Kernel> kernel = make == nullptr || node.outputs.empty() || node.inputs.empty()
                                ? fail(not_supported(p, "there is no kernel for it"))
                                : make(p);
    if (!kernel && kernel.error().code == ErrorCode::kUnsupported) {
      refused.insert(kernel.error().facts.begin(), kernel.error().facts.end());
      continue;
    }
    if (!kernel) {
      kernel.error().what = fmt::format("{} is not a readable .tflite file", name);
      return fail(std::move(kernel.error()));
    }
    program.kernels_.push_back(std::move(*kernel));
    program.scratch_ = std::max(program.scratch_, p.scratch);
    program.packed_ += p.packed;
  }
  if (!refused.empty())
    return fail(Error{ErrorCode::kUnsupported,
                      fmt::format("{} has operators that Plimsoll does not run", name),
                      {refused.begin(), refused.end()},
                      {}});
  PLIMSOLL_TRY(program.place(keep));
  return program;
}

// Gives every tensor the lowest place that is free while it is needed, the largest ones first.
Status Program::place(bool keep) {
  struct Life {
    size_t tensor = 0, first = 0, last = 0;
    Bytes bytes = 0, offset = 0;
  };
  const size_t end = model_->operators.size();
  std::vector<Life> lives;
  std::vector<int64_t> first(model_->tensors.size(), -1), last(model_->tensors.size(), -1);
  const auto use = [&](int32_t tensor, size_t at) {
    const auto i = static_cast<size_t>(tensor);
    if (tensor < 0) return;
    if (first[i] < 0) first[i] = static_cast<int64_t>(at);
    last[i] = static_cast<int64_t>(at);
  };
  for (const int32_t i : model_->inputs) use(i, 0);
  for (size_t at = 0; at < end; ++at) {
    for (const int32_t i : model_->operators[at].inputs) use(i, at);
    for (const int32_t i : model_->operators[at].outputs) use(i, at);
  }
  for (const int32_t i : model_->outputs) use(i, end);
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] < 0 || model_->tensors[i].constant()) continue;
    // At most 2^34 bytes each, and 2^20 tensors: no sum below overflows.
    const Bytes bytes = (model_->tensors[i].bytes() + kAlign - 1) / kAlign * kAlign;
    lives.push_back({i, keep ? 0 : static_cast<size_t>(first[i]), keep ? end : static_cast<size_t>(last[i]), bytes});
  }
  std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  offsets_.assign(model_->tensors.size(), -1);
  std::vector<Life*> placed;  // by offset
  for (Life& life : lives) {
    Bytes at = 0;
    for (const Life* other : placed)
      if (other->first <= life.last && life.first <= other->last && other->offset < at + life.bytes)
        at = std::max(at, other->offset + other->bytes);
    life.offset = at;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [](Bytes offset, const Life* one) { return offset < one->offset; }),
                  &life);
    offsets_[life.tensor] = at;
    arena_ = std::max(arena_, at + life.bytes);
  }
  scratch_ = checked_align_up(scratch_, kAlign).value_or(scratch_);
  return {};
}

Buffers Program::make_buffers() const {
  Buffers b;
  b.memory.resize(static_cast<size_t>(arena_ + kAlign));
  b.scratch.resize(static_cast<size_t>(scratch_ + kAlign));
  b.at.resize(offsets_.size());
  std::byte* const base = aligned(b.memory.data());
  b.room = aligned(b.scratch.data());
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const Tensor& t = model_->tensors[i];
    // Kernels only read constants.
    b.at[i] = offsets_[i] >= 0 ? static_cast<void*>(base + offsets_[i])
                               : const_cast<void*>(static_cast<const void*>(t.data.data()));
  }
  return b;
}

}  // namespace plimsoll::engine::lite
