#include "backends/cpu/half/half.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/cpu/half/convert.h"
#include "backends/cpu/half/piece.h"
#include "backends/cpu/parallel.h"

namespace plimsoll::engine::cpu {
namespace {

constexpr Bytes kItself = -1;  // not in the workspace: the value's own memory

// An input or output of the node, and where the float32 kernel has it.
struct Operand {
  DType dtype = DType::kFloat32;
  bool by_sample = false;
  int64_t elements = 0;             // of a sample, or of the whole value
  Bytes buffer = kItself;           // what the kernel reads or writes
  Bytes share = kItself;            // of an output that is a sum: what later pieces add to the buffer
  Bytes plain = kItself;            // row-major, if the buffer has another layout
  std::optional<PieceKernel> move;  // from or to that layout
  Bytes buffer_bytes = 0;

  bool is_wide() const { return !is_half(dtype); }
};

// Everything that a half-precision node's kernel needs to know but addresses.
struct HalfNode {
  Cut cut;
  PieceKernel full;
  std::optional<PieceKernel> tail;
  std::vector<Operand> inputs, outputs;
  Bytes kernel_workspace = 0, workspace = 0;  // the first at offset `kernel_at`
  Bytes kernel_at = 0;

  const PieceKernel& kernel_of(int64_t piece) const { return tail && piece + 1 == cut.pieces ? *tail : full; }
};

// Gives an operand that is used whole its places in the workspace. Returns the bytes of the row-major copy, which is
// needed only while no piece runs.
Result<Bytes> place_whole(Operand& operand, const Value& value, bool is_input, bool adds, Bytes& end,
                          const Machine& machine) {
  const bool other_layout = !value.layout.empty();
  operand.buffer_bytes = other_layout ? value.bytes() : 4 * operand.elements;
  if (other_layout || !operand.is_wide()) {
    operand.buffer = end;
    end += align_up(operand.buffer_bytes);
  }
  if (adds) {
    operand.share = end;
    end += align_up(operand.buffer_bytes);
  }
  if (!other_layout) return Bytes{0};
  Value plain = value;
  plain.layout.clear();
  plain.layout_bytes = 0;
  plain.name += "/plain";
  PLIMSOLL_ASSIGN(operand.move,
                  is_input ? reorder_kernel(plain, value, machine) : reorder_kernel(value, plain, machine));
  return operand.is_wide() ? Bytes{0} : align_up(4 * operand.elements);
}

Operand operand_of(const TensorType& type, bool by_sample, const Cut& cut) {
  Operand operand;
  operand.dtype = type.dtype;
  operand.by_sample = by_sample && cut.pieces > 1;
  operand.elements = operand.by_sample ? type.shape.elements() / cut.samples : type.shape.elements();
  return operand;
}

// Workspace: values that are used whole; then the operands of a piece and the kernel's own workspace, which lie where
// the row-major copies are before the first piece and after the last.
Result<HalfNode> plan_node(const Problem& p) {
  HalfNode half;
  half.cut = cut_of(p);
  const Cut& cut = half.cut;
  PLIMSOLL_ASSIGN(half.full, piece_kernel(p, cut, cut.rows));
  const int64_t last = cut.rows_of(cut.pieces - 1);
  if (last != cut.rows) {
    PLIMSOLL_ASSIGN(half.tail, piece_kernel(p, cut, last));
  }
  Bytes end = 0, plain_bytes = 0, piece_bytes = 0;
  std::vector<Operand*> in_piece, plain;
  const auto place = [&](Operand& operand, const PieceKernel& kernel, const Value& value, bool is_input,
                         bool adds) -> Status {
    if (operand.by_sample) {
      if (!value.layout.empty())
        return fail(ErrorCode::kUnsupported, fmt::format("{}: '{}' is not row-major", kernel.node().op, value.name));
      operand.buffer_bytes = cut.rows * operand.elements * size_of(value.type.dtype);
      in_piece.push_back(&operand);
      return {};
    }
    PLIMSOLL_ASSIGN(const Bytes bytes, place_whole(operand, value, is_input, adds, end, p.machine));
    if (bytes > 0) plain.push_back(&operand);
    return {};
  };
  half.inputs.reserve(p.inputs());
  half.outputs.reserve(p.outputs());
  for (size_t i = 0; i < p.inputs(); ++i) {
    half.inputs.push_back(operand_of(p.in(i).type, cut.inputs[i] == 's', cut));
    PLIMSOLL_TRY(place(half.inputs.back(), half.full, half.full.in(i), true, false));
    if (half.tail && half.tail->in(i).layout != half.full.in(i).layout)
      return fail(ErrorCode::kUnsupported, p.node.op + ": two pieces of the batch want different layouts");
  }
  for (size_t i = 0; i < p.outputs(); ++i) {
    half.outputs.push_back(operand_of(p.out(i).type, cut.outputs[i] == 's', cut));
    const bool adds = cut.outputs[i] == '+' && cut.pieces > 1;
    PLIMSOLL_TRY(place(half.outputs.back(), half.full, half.full.out(i), false, adds));
    if (half.tail && half.tail->out(i).layout != half.full.out(i).layout)
      return fail(ErrorCode::kUnsupported, p.node.op + ": two pieces of the batch want different layouts");
  }
  for (Operand* operand : in_piece) {
    operand->buffer = end + piece_bytes;
    piece_bytes += align_up(operand->buffer_bytes);
  }
  Bytes moving = 0;  // the workspace of a reorder
  for (const auto* list : {&half.inputs, &half.outputs})
    for (const Operand& operand : *list)
      if (operand.move) moving = std::max(moving, align_up(operand.move->offer.workspace));
  for (Operand* operand : plain) {  // one at a time
    operand->plain = end + moving;
    plain_bytes = std::max(plain_bytes, align_up(4 * operand->elements));
  }
  half.kernel_workspace = std::max(half.full.offer.workspace, half.tail ? half.tail->offer.workspace : 0);
  half.kernel_at = end + piece_bytes;
  half.workspace = end + std::max(piece_bytes + align_up(half.kernel_workspace), moving + plain_bytes);
  return half;
}

// A half-precision node bound to addresses.
class HalfRun final : public Kernel {
 public:
  HalfRun(std::shared_ptr<const HalfNode> half, const Machine& machine, const BoundNode& node)
      : half_(std::move(half)),
        threads_(machine.threads),
        workspace_(static_cast<char*>(node.workspace)),
        inputs_(node.inputs.begin(), node.inputs.end()),
        outputs_(node.outputs.begin(), node.outputs.end()) {}

  Status bind(const Machine& machine) {
    PLIMSOLL_TRY(bind_moves(machine, half_->inputs, inputs_, true));
    PLIMSOLL_TRY(bind_moves(machine, half_->outputs, outputs_, false));
    const int64_t pieces = half_->cut.pieces;
    PLIMSOLL_ASSIGN(first_, bind_piece(machine, half_->kernel_of(0), true));
    if (pieces > (half_->tail ? 2 : 1)) {
      PLIMSOLL_ASSIGN(next_, bind_piece(machine, half_->full, false));
    }
    if (half_->tail) {
      PLIMSOLL_ASSIGN(tail_, bind_piece(machine, *half_->tail, false));
    }
    return {};
  }

  void run() override {
    const Cut& cut = half_->cut;
    each(half_->inputs, false, [&](size_t i, const Operand& operand) { read_whole(operand, inputs_[i], i); });
    for (int64_t piece = 0; piece < cut.pieces; ++piece) {
      const int64_t first = piece * cut.rows, rows = cut.rows_of(piece);
      each(half_->inputs, true, [&](size_t i, const Operand& x) {
        const int64_t n = rows * x.elements;
        convert_in(x, static_cast<const char*>(inputs_[i]) + first * x.elements * size_of(x.dtype), at(x.buffer), n);
      });
      (piece == 0 ? first_ : tail_ && piece + 1 == cut.pieces ? tail_ : next_)->run();
      each(half_->outputs, true, [&](size_t i, const Operand& y) {
        const int64_t n = rows * y.elements;
        convert_out(y, at(y.buffer), static_cast<char*>(outputs_[i]) + first * y.elements * size_of(y.dtype), n);
      });
      if (piece > 0) each(half_->outputs, false, [&](size_t i, const Operand& y) { add_share(y, outputs_[i]); });
    }
    each(half_->outputs, false, [&](size_t i, const Operand& operand) { write_whole(operand, outputs_[i], i); });
  }

 private:
  char* at(Bytes offset) const { return workspace_ + offset; }
  void* place_of(const Operand& operand, void* itself) const {
    return operand.buffer == kItself ? itself : at(operand.buffer);
  }

  template <typename F>
  static void each(const std::vector<Operand>& operands, bool by_sample, const F& f) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].by_sample == by_sample) f(i, operands[i]);
  }

  Result<std::unique_ptr<Kernel>> bind_kernel(const Machine& machine, const PieceKernel& kernel,
                                              const std::vector<void*>& in, const std::vector<void*>& out,
                                              Bytes workspace) const {
    PLIMSOLL_ASSIGN(const Recipe recipe,
                    recipe_for({{*kernel.graph, kernel.node()}, machine, true, kernel.offer.kernel}));
    return recipe.bind(
        {*kernel.graph, kernel.node(), kernel.offer.kernel, in, out, at(workspace), kernel.offer.workspace});
  }

  Result<std::unique_ptr<Kernel>> bind_piece(const Machine& machine, const PieceKernel& kernel, bool first) const {
    std::vector<void*> in, out;
    for (size_t i = 0; i < inputs_.size(); ++i) in.push_back(place_of(half_->inputs[i], inputs_[i]));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Operand& y = half_->outputs[i];
      out.push_back(!first && y.share != kItself ? at(y.share) : place_of(y, outputs_[i]));
    }
    return bind_kernel(machine, kernel, in, out, half_->kernel_at);
  }

  Status bind_moves(const Machine& machine, const std::vector<Operand>& operands, const std::vector<void*>& values,
                    bool is_input) {
    auto& moves = is_input ? moves_in_ : moves_out_;
    moves.resize(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (!operand.move) continue;
      void* const plain = operand.plain == kItself ? values[i] : at(operand.plain);
      void* const other = at(operand.buffer);
      // The reorder's workspace is where the pieces begin; the row-major copy lies behind it.
      PLIMSOLL_ASSIGN(moves[i], bind_kernel(machine, *operand.move, {is_input ? plain : other},
                                            {is_input ? other : plain}, first_free()));
    }
    return {};
  }
  // Where the values that are used whole end.
  Bytes first_free() const {
    Bytes end = half_->kernel_at;
    for (const auto* list : {&half_->inputs, &half_->outputs})
      for (const Operand& operand : *list)
        if (operand.by_sample) end = std::min(end, operand.buffer);
    return end;
  }

  void convert_in(const Operand& x, const void* from, void* to, int64_t n) const {
    const Bytes size = size_of(x.dtype);
    parallel_ranges(threads_, n, kGrain, [&](int64_t begin, int64_t end) {
      const char* const source = static_cast<const char*>(from) + begin * size;
      if (is_half(x.dtype)) return widen(x.dtype, source, static_cast<float*>(to) + begin, end - begin);
      std::memcpy(static_cast<char*>(to) + begin * size, source, static_cast<size_t>((end - begin) * size));
    });
  }
  void convert_out(const Operand& y, const void* from, void* to, int64_t n) const {
    const Bytes size = size_of(y.dtype);
    parallel_ranges(threads_, n, kGrain, [&](int64_t begin, int64_t end) {
      char* const target = static_cast<char*>(to) + begin * size;
      if (is_half(y.dtype)) return narrow(y.dtype, static_cast<const float*>(from) + begin, target, end - begin);
      std::memcpy(target, static_cast<const char*>(from) + begin * size, static_cast<size_t>((end - begin) * size));
    });
  }

  void read_whole(const Operand& x, const void* value, size_t i) const {
    if (x.buffer == kItself) return;
    if (!x.is_wide()) convert_in(x, value, at(x.move ? x.plain : x.buffer), x.elements);
    if (x.move) moves_in_[i]->run();
  }
  void write_whole(const Operand& y, void* value, size_t i) const {
    if (y.buffer == kItself) return;
    if (y.move) moves_out_[i]->run();
    if (!y.is_wide()) convert_out(y, at(y.move ? y.plain : y.buffer), value, y.elements);
  }
  void add_share(const Operand& y, void* value) const {
    if (y.share == kItself) return;
    auto* const sum = static_cast<float*>(place_of(y, value));
    const auto* const share = reinterpret_cast<const float*>(at(y.share));
    parallel_ranges(threads_, y.buffer_bytes / 4, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum[i] += share[i];
    });
  }

  static constexpr int64_t kGrain = 16384;

  std::shared_ptr<const HalfNode> half_;
  int threads_;
  char* workspace_;
  std::vector<void*> inputs_, outputs_;
  std::unique_ptr<Kernel> first_, next_, tail_;
  std::vector<std::unique_ptr<Kernel>> moves_in_, moves_out_;
};

void count_kernel(const PieceKernel& kernel, KernelOffer& offer, double times) {
  offer.seconds += times * kernel.offer.seconds;
  offer.primitives += kernel.offer.primitives;
  if (!kernel.offer.primitive_key.empty()) offer.primitive_key += kernel.offer.primitive_key + ";";
}

KernelOffer offer_of(const Problem& p, const HalfNode& half) {
  KernelOffer offer;
  offer.kernel = "half:" + half.full.offer.kernel;
  offer.workspace = half.workspace;
  const int64_t tails = half.tail ? 1 : 0;
  count_kernel(half.full, offer, static_cast<double>(half.cut.pieces - tails));
  if (half.tail) count_kernel(*half.tail, offer, 1);
  double converted = 0;  // bytes that are read and written to convert them; float32 stays in a cache
  for (const auto* list : {&half.inputs, &half.outputs})
    for (const Operand& operand : *list) {
      if (operand.move) count_kernel(*operand.move, offer, 1);
      if (operand.buffer != kItself)
        converted += static_cast<double>(operand.elements * (operand.by_sample ? half.cut.samples : 1) *
                                         (size_of(operand.dtype) + 4));
    }
  offer.seconds += p.machine.seconds(0, 1, converted);
  return offer;
}

}  // namespace

bool has_half(const Problem& p) {
  const auto is = [&](ValueId id) { return is_half(p.graph.type(id).dtype); };
  return std::any_of(p.node.inputs.begin(), p.node.inputs.end(), is) ||
         std::any_of(p.node.outputs.begin(), p.node.outputs.end(), is);
}

Result<Recipe> half_recipe(const Problem& p) {
  PLIMSOLL_ASSIGN(HalfNode planned, plan_node(p));
  const auto half = std::make_shared<const HalfNode>(std::move(planned));
  Recipe recipe;
  recipe.offer = offer_of(p, *half);
  recipe.bind = [half, &machine = p.machine](const BoundNode& node) -> Result<std::unique_ptr<Kernel>> {
    auto run = std::make_unique<HalfRun>(half, machine, node);
    PLIMSOLL_TRY(run->bind(machine));
    return std::unique_ptr<Kernel>(std::move(run));
  };
  return recipe;
}

}  // namespace plimsoll::engine::cpu
