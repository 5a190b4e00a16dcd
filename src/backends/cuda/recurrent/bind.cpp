// Binds recurrent and recurrent_grad: a list of launches and products of cuBLASLt, chunk by chunk.
#include <fmt/format.h>

#include <functional>
#include <map>

#include "backends/cuda/driver/binding.h"
#include "backends/cuda/matmul/bind_cublaslt.h"
#include "backends/cuda/recurrent/geometry.h"
#include "backends/cuda/recurrent/launch.h"

namespace plimsoll::engine::cuda {
namespace {

// Runs launches and products in order.
class LoopKernel final : public Kernel {
 public:
  explicit LoopKernel(Context& context, std::string what) : context_(context), what_(std::move(what)) {}
  void run() override {
    for (const auto& action : actions_) action();
    note_enqueued(context_, what_);
  }
  void add(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // Equal products at equal addresses are bound once.
  Status add_product(const Product& product, const ProductAddresses& at, const Workspace& workspace) {
    const Key key{product.m, product.n, product.k, product.adds ? 1 : 0, at.a, at.b, at.y};
    auto found = products_.find(key);
    if (found == products_.end()) {
      PLIMSOLL_ASSIGN(auto bound, bind_product(context_, product, at, workspace));
      found = products_.emplace(key, std::move(bound)).first;
    }
    add([kernel = found->second.get()] { kernel->run(); });
    return {};
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int, const void*, const void*, const void*>;
  Context& context_;
  std::string what_;
  std::map<Key, std::unique_ptr<Kernel>> products_;
  std::vector<std::function<void()>> actions_;
};

class LoopBinder {
 public:
  LoopBinder(Context& context, const BoundNode& node, const LoopGeometry& geometry)
      : context_(context),
        stream_(context.stream),
        node_(node),
        g_(geometry),
        r_(g_.r),
        backward_(node.node.op == "recurrent_grad"),
        scratch_(loop_scratch(g_, backward_)),
        workspace_(workspace_of(node)),
        kernel_(std::make_unique<LoopKernel>(context, node.node.op)) {}

  BoundKernel bind() {
    if (workspace_.bytes < scratch_.bytes)
      return fail(ErrorCode::kBadPlan, fmt::format("{} needs a workspace of {} bytes but the plan provides {}",
                                                   node_.node.op, scratch_.bytes, workspace_.bytes));
    describe();
    PLIMSOLL_TRY(backward_ ? bind_backward() : bind_forward());
    return std::move(kernel_);
  }

 private:
  // Steps [begin, end).
  struct Steps {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };

  template <typename T = void>
  T* part(Bytes offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(workspace_.data) + offset);
  }
  void* in(Slot slot) const { return slot < 0 ? nullptr : node_.inputs[static_cast<size_t>(slot)]; }
  void* out(Slot slot) const { return slot < 0 ? nullptr : node_.outputs[static_cast<size_t>(slot)]; }
  // Elements of the node's type.
  const void* at(const void* first, int64_t elements) const {
    return static_cast<const std::byte*>(first) + elements * g_.element();
  }
  void zero(Bytes offset, Bytes bytes) {
    if (bytes > 0)
      kernel_->add([=, this_part = part(offset), stream = stream_] {
        cudaMemsetAsync(this_part, 0, static_cast<size_t>(bytes), stream);
      });
  }

  void describe() {
    const auto narrow = [](int64_t n) { return static_cast<int>(n); };
    LoopShape& s = shape_;
    s.element = element_of(g_.dtype);
    s.cell = r_.cell == CellKind::kSimple ? LoopCell::kSimple
             : r_.cell == CellKind::kLstm ? LoopCell::kLstm
             : r_.cell == CellKind::kGru  ? LoopCell::kGru
                                          : LoopCell::kGruResetBefore;
    s.activation = r_.activation;
    s.recurrent_activation = r_.recurrent_activation;
    s.matrix = g_.matrix;
    s.reverse = r_.reverse;
    s.keeps_order = r_.keeps_order;
    s.sequences = r_.sequences;
    s.zeroes_masked = r_.zeroes_masked;
    s.n = narrow(r_.n), s.t = narrow(r_.t), s.d = narrow(r_.d), s.u = narrow(r_.u);
    s.gates = narrow(r_.gates()), s.sums = narrow(g_.sums()), s.saved = narrow(r_.saved());
    s.padded = narrow(g_.padded), s.k_block = narrow(g_.k_block);
    s.tiles = narrow(g_.tiles), s.block_tiles = narrow(g_.block_tiles), s.blocks = narrow(g_.blocks);
    s.groups = narrow(g_.groups), s.rows = narrow(g_.rows), s.row_tile = narrow(g_.row_tile());
    s.split = narrow(g_.split);
    s.x_masks = narrow(r_.x_masks), s.h_masks = narrow(r_.h_masks);
    s.mask = in(r_.in_mask);
    s.x_mask = in(r_.in_x_masks);
    s.h_mask = in(r_.in_h_masks);
    s.bias = in(r_.in_bias);
    s.first = part<int>(scratch_.first);
    kernel_->add([s, first = part<int>(scratch_.first), stream = stream_] { launch_first_steps(s, first, stream); });
  }

  LoopShape forward_shape() const {
    LoopShape s = shape_;
    s.shared_bytes = static_cast<int>(g_.forward_shared());
    s.in_shared = g_.forward_in_shared;
    return s;
  }
  LoopShape backward_shape() const {
    LoopShape s = shape_;
    s.shared_bytes = static_cast<int>(g_.backward_shared());
    s.in_shared = g_.backward_in_shared;
    return s;
  }

  Product product(int64_t m, int64_t n, int64_t k) const {
    Product p;
    p.m = m, p.n = n, p.k = k;
    p.dtype = g_.dtype;
    p.result = DType::kFloat32;
    p.most_timed = 4;
    return p;
  }
  Status add(const Product& p, const void* a, const void* b, float* y) {
    return kernel_->add_product(p, {a, b, nullptr, y}, Workspace{part(scratch_.library), scratch_.library_bytes});
  }

  void gather_inputs(const Steps& steps, int64_t gate) {
    kernel_->add([s = shape_, x = in(0), gate, steps, to = part(scratch_.operand), stream = stream_] {
      launch_gather_inputs(s, x, static_cast<int>(gate), static_cast<int>(steps.begin), static_cast<int>(steps.end), to,
                           stream);
    });
  }

  // Runs the steps from the states in `f.record` and keeps what `f` asks for.
  Status run_steps(const Steps& range, LoopForward f) {
    f.shape = forward_shape();
    f.packed = part(scratch_.packed);
    f.products = part<float>(scratch_.products);
    f.state_h = part<float>(scratch_.state_h);
    f.state_c = r_.has_carry() ? part<float>(scratch_.state_c) : nullptr;
    f.exchange = part(scratch_.exchange);
    f.exchange_copy = g_.padded_rows() * g_.padded;
    f.reset = part(scratch_.reset);
    f.counters = part<unsigned>(scratch_.counters);
    f.begin = static_cast<int>(range.begin);
    kernel_->add([f, stream = stream_] { launch_begin_states(f, stream); });
    for (int64_t begin = range.begin; begin < range.end; begin += g_.chunk) {
      const Steps chunk{begin, std::min(range.end, begin + g_.chunk)};
      PLIMSOLL_TRY(multiply_inputs(chunk));
      zero(scratch_.counters, scratch_.counter_bytes);
      f.begin = static_cast<int>(chunk.begin), f.end = static_cast<int>(chunk.end);
      kernel_->add([f, stream = stream_] { launch_loop_forward(f, stream); });
    }
    return {};
  }

  Status multiply_inputs(const Steps& chunk) {
    const int64_t rows = chunk.count() * r_.n;
    for (const GateGroup& group : input_groups(g_)) {
      if (group.gate == 0 || r_.x_masks > 1) gather_inputs(chunk, group.gate);
      Product p = product(rows, group.count * r_.u, r_.d);
      p.b_row = p.y_row = g_.wide();
      PLIMSOLL_TRY(add(p, part(scratch_.operand), at(in(1), group.gate * r_.u),
                       part<float>(scratch_.products) + group.gate * r_.u));
    }
    return {};
  }

  void pack(bool back) {
    kernel_->add([s = shape_, weights = in(2), to = part(back ? scratch_.packed_back : scratch_.packed), back,
                  stream = stream_] { launch_pack(s, weights, to, back, stream); });
  }

  Status bind_forward() {
    pack(false);
    zero(scratch_.exchange, scratch_.exchange_bytes);
    LoopForward f{};
    f.record.steps = static_cast<int>(r_.t);
    f.record.start_h = in(3);
    f.record.start_c = in(r_.in_carry);
    f.record.start_row = r_.u;
    if (r_.saves == CellSaves::kEverything) {
      f.record.states = out(r_.out_states);
      f.record.carries = out(r_.out_carries);
      f.record.gates = out(r_.out_gates);
    } else if (g_.again()) {
      f.checkpoint_h = out(r_.out_states);
      f.checkpoint_c = out(r_.out_carries);
    }
    f.every = static_cast<int>(std::max<int64_t>(1, r_.every));
    f.checkpoints = static_cast<int>(r_.checkpoints());
    f.y = out(0);
    f.h = out(1);
    f.c = out(r_.out_carry);
    return run_steps({0, r_.t}, f);
  }

  // The record of a segment: what the forward pass saved, or scratch for what is computed again.
  LoopRecord record_of(const Steps& segment) const {
    LoopRecord record;
    if (!g_.again()) {
      record.states = in(r_.in_states);
      record.carries = in(r_.in_carries);
      record.gates = in(r_.in_gates);
      record.steps = static_cast<int>(r_.t);
      record.is_output = r_.output_is_states();
      record.start_h = in(3);
      record.start_c = in(r_.in_carry);
      record.start_row = r_.u;
      return record;
    }
    record.states = part(scratch_.states);
    record.carries = r_.has_carry() ? part(scratch_.carries) : nullptr;
    record.gates = r_.saved() > 0 ? part(scratch_.gates) : nullptr;
    record.begin = static_cast<int>(segment.begin);
    record.steps = static_cast<int>(g_.segment);
    const int64_t checkpoint = segment.begin / r_.every * r_.u;
    record.start_h = at(in(r_.in_states), checkpoint);
    record.start_c = r_.has_carry() ? at(in(r_.in_carries), checkpoint) : nullptr;
    record.start_row = r_.checkpoints() * r_.u;
    return record;
  }

  Status bind_backward() {
    pack(true);
    if (g_.again()) {
      pack(false);
      zero(scratch_.exchange, scratch_.exchange_bytes);
    }
    if (g_.padded_units()) zero(scratch_.sums, scratch_.sums_bytes);
    zero_weight_gradients();
    begin_gradient(r_.in_dh, scratch_.grad_h);
    if (r_.has_carry()) begin_gradient(r_.in_dc, scratch_.grad_c);
    for (int64_t end = r_.t; end > 0;) {
      const Steps segment{(end - 1) / g_.segment * g_.segment, end};
      PLIMSOLL_TRY(bind_segment(segment));
      end = segment.begin;
    }
    end_backward();
    return {};
  }

  void begin_gradient(Slot from, Bytes to) {
    kernel_->add([s = shape_, from = in(from), to = part<float>(to), stream = stream_] {
      launch_begin_gradient(s, from, to, stream);
    });
  }

  Status bind_segment(const Steps& segment) {
    const LoopRecord record = record_of(segment);
    if (g_.again()) {
      LoopForward f{};
      f.record = record;
      f.every = 1;
      PLIMSOLL_TRY(run_steps(segment, f));
    }
    for (int64_t end = segment.end; end > segment.begin;) {
      const Steps chunk{segment.begin + (end - 1 - segment.begin) / g_.chunk * g_.chunk, end};
      run_back(chunk, record);
      PLIMSOLL_TRY(input_gradient(chunk));
      PLIMSOLL_TRY(weight_gradients(chunk, record));
      end = chunk.begin;
    }
    return {};
  }

  void run_back(const Steps& chunk, const LoopRecord& record) {
    zero(scratch_.counters, scratch_.counter_bytes);
    LoopBackward b{};
    b.shape = backward_shape();
    b.record = record;
    b.begin = static_cast<int>(chunk.begin), b.end = static_cast<int>(chunk.end);
    b.packed = part(scratch_.packed_back);
    b.dy = in(r_.in_dy);
    b.grad_h = part<float>(scratch_.grad_h);
    b.grad_c = part<float>(scratch_.grad_c);
    b.sums = part(scratch_.sums);
    b.partial = part<float>(scratch_.partial);
    b.partial_part = g_.padded_rows() * g_.tiles * kUnitTile;
    b.counters = part<unsigned>(scratch_.counters);
    kernel_->add([b, stream = stream_] { launch_loop_backward(b, stream); });
  }

  // The sums' gradients of some gates, of the part from the input or from the state.
  const void* sums_of(int64_t gate, bool from_state) const {
    const int64_t column = from_state && r_.cell == CellKind::kGru && gate == 2 ? 3 : gate;
    return at(part(scratch_.sums), column * g_.padded);
  }

  Status input_gradient(const Steps& chunk) {
    if (r_.out_dx < 0) return {};
    const int64_t rows = chunk.count() * r_.n;
    const bool parts = r_.x_masks > 1;
    float* const to = part<float>(scratch_.input_grad);
    for (const GateGroup& group : input_groups(g_)) {
      Product p = product(rows, r_.d, group.count * r_.u);
      p.tb = true;
      p.a_row = g_.width();
      p.b_row = g_.wide();
      p.adds = !parts && group.gate > 0;
      PLIMSOLL_TRY(add(p, sums_of(group.gate, false), at(in(1), group.gate * r_.u),
                       to + (parts ? group.gate * rows * r_.d : 0)));
    }
    kernel_->add([s = shape_, to, parts = parts ? static_cast<int>(r_.gates()) : 1, chunk, dx = out(r_.out_dx),
                  stream = stream_] {
      launch_scatter_inputs(s, to, parts, static_cast<int>(chunk.begin), static_cast<int>(chunk.end), dx, stream);
    });
    return {};
  }

  // Gradients of weights are added up in float32: in the output itself, or in scratch for half precision.
  float* weight_sums(Slot output, Bytes offset) const {
    return g_.dtype == DType::kFloat32 ? static_cast<float*>(out(output)) : part<float>(offset);
  }

  void zero_weight_gradients() {
    if (r_.out_dw < 0) return;
    const auto zero_sums = [&](float* sums, int64_t count) {
      kernel_->add([=, stream = stream_] { cudaMemsetAsync(sums, 0, static_cast<size_t>(count) * 4, stream); });
    };
    zero_sums(weight_sums(r_.out_dw, scratch_.weight_grad), r_.d * g_.wide());
    zero_sums(weight_sums(r_.out_du, scratch_.state_weight_grad), r_.u * g_.wide());
    if (r_.out_db >= 0) zero_sums(part<float>(scratch_.bias_grad), g_.width());
  }

  // Adds the products of a chunk.
  Status weight_gradients(const Steps& chunk, const LoopRecord& record) {
    if (r_.out_dw < 0) return {};
    const int64_t rows = chunk.count() * r_.n;
    const auto add_group = [&](const GateGroup& group, int64_t m, bool from_state, float* to) {
      Product p = product(m, group.count * r_.u, rows);
      p.ta = true;
      p.b_row = g_.width();
      p.y_row = g_.wide();
      p.adds = true;
      return add(p, part(scratch_.operand), sums_of(group.gate, from_state), to + group.gate * r_.u);
    };
    for (const GateGroup& group : input_groups(g_)) {
      if (group.gate == 0 || r_.x_masks > 1) gather_inputs(chunk, group.gate);
      PLIMSOLL_TRY(add_group(group, r_.d, false, weight_sums(r_.out_dw, scratch_.weight_grad)));
    }
    for (const GateGroup& group : state_groups(g_)) {
      const bool reset = r_.cell == CellKind::kGruResetBefore && group.gate == 2;
      if (group.gate == 0 || r_.h_masks > 1 || reset) gather_states(chunk, record, group.gate, reset);
      PLIMSOLL_TRY(add_group(group, r_.u, true, weight_sums(r_.out_du, scratch_.state_weight_grad)));
    }
    if (r_.out_db >= 0)
      kernel_->add([s = shape_, from = part(scratch_.sums), rows, to = part<float>(scratch_.bias_grad),
                    stream = stream_] { launch_column_sums(s, from, rows, to, stream); });
    return {};
  }

  void gather_states(const Steps& steps, const LoopRecord& record, int64_t gate, bool reset) {
    kernel_->add([s = shape_, record, gate, reset, steps, to = part(scratch_.operand), stream = stream_] {
      launch_gather_states(s, record, static_cast<int>(gate), reset, static_cast<int>(steps.begin),
                           static_cast<int>(steps.end), to, stream);
    });
  }

  void end_backward() {
    const auto round = [&](Slot output, Bytes offset, int64_t count) {
      if (output < 0 || g_.dtype == DType::kFloat32) return;
      kernel_->add([element = shape_.element, from = part<float>(offset), count, to = out(output), stream = stream_] {
        launch_round(element, from, count, to, stream);
      });
    };
    round(r_.out_dw, scratch_.weight_grad, r_.d * g_.wide());
    round(r_.out_du, scratch_.state_weight_grad, r_.u * g_.wide());
    if (r_.out_db >= 0)
      kernel_->add([s = shape_, from = part<float>(scratch_.bias_grad), to = out(r_.out_db), stream = stream_] {
        launch_bias_gradient(s, from, to, stream);
      });
    const auto end = [&](Slot output, Bytes from) {
      kernel_->add([s = shape_, from = part<float>(from), to = out(output), stream = stream_] {
        launch_end_gradient(s, from, to, stream);
      });
    };
    end(r_.out_dh, scratch_.grad_h);
    if (r_.out_dc >= 0) end(r_.out_dc, scratch_.grad_c);
  }

  Context& context_;
  cudaStream_t stream_;
  const BoundNode& node_;
  LoopGeometry g_;
  const Recurrent& r_;
  bool backward_;
  LoopScratch scratch_;
  Workspace workspace_;
  LoopShape shape_{};
  std::unique_ptr<LoopKernel> kernel_;
};

}  // namespace

BoundKernel bind_recurrent(Context& context, const BoundNode& node) {
  if (node.kernel != kLoopKernel)
    return fail(ErrorCode::kBadPlan, fmt::format("{}: there is no kernel '{}' on the GPU", node.node.op, node.kernel));
  PLIMSOLL_ASSIGN(const LoopGeometry geometry, loop_geometry(context.card, NodeView{node.graph, node.node}));
  return LoopBinder(context, node, geometry).bind();
}

}  // namespace plimsoll::engine::cuda
