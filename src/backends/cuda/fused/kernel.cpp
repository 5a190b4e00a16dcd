#include "backends/cuda/fused/kernel.h"

#include <algorithm>
#include <bit>

#include "backends/common/elementwise.h"
#include "backends/cuda/fused/writer.h"
#include "lower/lower.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr unsigned kThreads = 256;
// The largest number of threads of a block along the channels, 16 bytes each. For kernels with sums it is smaller: one
// block per range of channels adds up the partial sums at the end, so narrower ranges mean more such blocks, each with
// less to add.
constexpr unsigned kLanes = 32, kSummingLanes = 16;
// Each segment of a sum has a counter per block of at least so many columns (kSummingLanes, one channel each). Context
// has kCounters (16,384) of them.
constexpr int64_t kLeastColumns = kSummingLanes, kMostSegments = 16384;

}  // namespace

const char* type_text(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat64:
      return "double";
    case DType::kInt8:
      return "signed char";
    case DType::kInt16:
      return "short";
    case DType::kInt32:
      return "int";
    case DType::kInt64:
      return "long long";
    case DType::kUInt8:
    case DType::kBool:
      return "unsigned char";
    case DType::kUInt16:
      return "unsigned short";
    case DType::kUInt32:
      return "unsigned";
    case DType::kUInt64:
      return "unsigned long long";
  }
  return "?";
}

bool FusedWriter::find_shape() {
  const Shape* shape = nullptr;
  bool sums = false;
  for (const Node& n : nodes_) {
    const Shape& s = graph_.type(is_channel_sum(n.op) ? n.inputs[0] : n.outputs[0]).shape;
    if (shape != nullptr && s != *shape) return false;
    shape = &s;
    by_channel_ = by_channel_ || uses_channels(n.op);
    if (!is_channel_sum(n.op)) continue;
    const int64_t segments = n.op == "reduce_to" ? summed_segments(s, graph_.type(n.outputs[0]).shape) : 1;
    if (segments == 0 || (sums && segments != kernel_.segments)) return false;
    kernel_.segments = segments;
    sums = true;
  }
  if (shape == nullptr) return false;  // a body without nodes
  elements_ = shape->elements();
  kernel_.channels = by_channel_ ? shape->back() : elements_;
  kernel_.rows = elements_ / kernel_.channels / kernel_.segments;
  return true;
}

// A thread reads 16 bytes of the narrowest tensor, if the number of channels allows it.
void FusedWriter::choose_width() {
  Bytes narrowest = 4;
  const auto look = [&](ValueId id) {
    if (is_full(id) && is_floating(graph_.type(id).dtype))
      narrowest = std::min(narrowest, size_of(graph_.type(id).dtype));
  };
  for (ValueId id : inputs_) look(id);
  for (ValueId id : outputs_) look(id);
  int width = static_cast<int>(16 / narrowest);
  if (parts_ > 0) {  // the kernel handles the remainder
    kernel_.width = width;
    return;
  }
  while (kernel_.channels % width != 0) width /= 2;
  width = repeated_width(width);
  kernel_.width = width;
  if (by_channel_) return;
  kernel_.rows = elements_ / width;
  kernel_.channels = width;
}

size_t FusedWriter::input_index(size_t i) {
  const auto found = std::find(inputs_.begin(), inputs_.end(), node().inputs[i]);
  if (found == inputs_.end()) {
    refuse("reads a sum that the same fused kernel computes");
    return 0;
  }
  return static_cast<size_t>(found - inputs_.begin());
}

int FusedWriter::output_index(ValueId id) const {
  const auto found = std::find(outputs_.begin(), outputs_.end(), id);
  return found == outputs_.end() ? kNone : static_cast<int>(found - outputs_.begin());
}

std::string FusedWriter::full(size_t i) {
  const ValueId id = node().inputs[i];
  if (const auto found = computed_.find(id); found != computed_.end()) return found->second;
  if (!is_full(id)) refuse("reads a tensor of a different shape");
  const size_t index = input_index(i);
  loaded_[index] = true;
  return fmt::format("x{}", index);
}

std::string FusedWriter::vector(size_t i) {
  const size_t index = input_index(i);
  if (!by_channel_ || type(i).shape.elements() != kernel_.channels)
    refuse("reads a vector that does not have one value per channel");
  if (const auto found = vectors_.find(index); found != vectors_.end()) return found->second;
  const std::string name = fmt::format("v{}", index);
  vectors_text_ +=
      fmt::format("    float {0}[W];\n    for (int k = 0; k < W; ++k) {0}[k] = to_float(i{1}[c0 + k]);\n", name, index);
  return vectors_[index] = name + "[k]";
}

std::string FusedWriter::raw_scalar(size_t i) {
  return fmt::format("i{}", input_index(i));
}

std::string FusedWriter::scalar(size_t i) {
  const size_t index = input_index(i);
  if (const auto found = scalars_.find(index); found != scalars_.end()) return found->second;
  return scalars_[index] = derived_scalar(fmt::format("to_float(i{}[0])", index));
}

std::string FusedWriter::derived_vector(const std::string& expression) {
  const std::string name = fresh("d");
  vectors_text_ += fmt::format("    float {0}[W];\n    for (int k = 0; k < W; ++k) {0}[k] = {1};\n", name, expression);
  return name + "[k]";
}

std::string FusedWriter::derived_scalar(const std::string& expression) {
  const std::string name = fresh("s");
  shared_ += fmt::format("  __shared__ float {0};\n  if (first_thread) {0} = {1};\n", name, expression);
  return name;
}

void FusedWriter::result(size_t i, const std::string& expression) {
  const ValueId id = node().outputs[i];
  const DType dtype = graph_.type(id).dtype;
  if (dtype != DType::kFloat32 && !is_half(dtype))
    refuse(fmt::format("writes {}; a fused kernel writes f32, f16 or bf16", name_of(dtype)));
  const std::string name = fresh("t");
  const int index = output_index(id);
  if (index != kNone) stored_.push_back(index);
  if (is_half(dtype)) {
    body_ += fmt::format("          const {0} h{1} = to_{0}({2});\n", type_text(dtype), name, expression);
    body_ += fmt::format("          const float {0} = to_float(h{0});\n", name);
    if (index != kNone) body_ += fmt::format("          q{}.v[k] = h{};\n", index, name);
  } else {
    body_ += fmt::format("          const float {} = {};\n", name, expression);
    if (index != kNone) body_ += fmt::format("          q{}.v[k] = {};\n", index, name);
  }
  computed_[id] = name;
}

int FusedWriter::sum(const std::string& expression) {
  body_ += fmt::format("          a{}[k] += {};\n", kernel_.sums, expression);
  return kernel_.sums++;
}

void FusedWriter::result_of_sums(size_t i, const std::string& expression) {
  const ValueId id = node().outputs[i];
  const int index = output_index(id);
  if (index == kNone) return;
  finish_ += fmt::format(
      "  o{}[static_cast<long long>(blockIdx.z) * channels + c] = from_float<{}>(static_cast<float>({}));\n", index,
      type_text(graph_.type(id).dtype), expression);
}

// Adds up the sums of a block, and then, in the block that finishes last, those of all blocks. Within a block, a thread
// adds every `slices`-th row of one channel, and the slices are added in order. In the last block all threads read the
// partial sums, four channels each if the channels come in fours, because the next kernel waits for this block.
std::string FusedWriter::finish_text() const {
  std::string text = fmt::format(
      "  constexpr int S = {};\n"
      "  __shared__ float staged[256 * W];\n"
      "  __shared__ double sliced[1024];\n"
      "  __shared__ bool is_last;\n"
      "  const int threads = static_cast<int>(blockDim.x * blockDim.y), columns = static_cast<int>(blockDim.x) * W;\n"
      "  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);\n"
      "  const int column = thread % columns, c = static_cast<int>(blockIdx.y) * columns + column;\n"
      "  const int slices = static_cast<int>(blockDim.y) / W, slice = thread / columns;\n"
      "  const bool adds = slice < slices && c < channels, ends = slice == 0 && c < channels;\n"
      "  const long long first_block = static_cast<long long>(blockIdx.z) * gridDim.x;\n"
      "  unsigned* const counter = counters + blockIdx.z * gridDim.y + blockIdx.y;\n",
      kernel_.sums);
  for (int a = 0; a < kernel_.sums; ++a)
    text += fmt::format(
        "  for (int k = 0; k < W; ++k) staged[threadIdx.y * columns + threadIdx.x * W + k] = a{0}[k];\n"
        "  __syncthreads();\n"
        "  if (adds) {{\n"
        "    double sum = 0;\n"
        "    for (int y = slice; y < static_cast<int>(blockDim.y); y += slices) sum += staged[y * columns + column];\n"
        "    sliced[thread] = sum;\n"
        "  }}\n"
        "  __syncthreads();\n"
        "  if (ends) {{\n"
        "    double sum = 0;\n"
        "    for (int s = 0; s < slices; ++s) sum += sliced[s * columns + column];\n"
        "    partial[(first_block + blockIdx.x) * S * channels + {0} * channels + c] = static_cast<float>(sum);\n"
        "  }}\n"
        "  __syncthreads();\n",
        a);
  text +=
      "  __threadfence();\n"
      "  if (first_thread) is_last = atomicAdd(counter, 1u) == gridDim.x - 1;\n"
      "  __syncthreads();\n"
      "  if (!is_last) return;\n"
      "  __threadfence();\n"
      "  const int together = channels % 4 == 0 && columns % 4 == 0 ? 4 : 1;\n"
      "  const int lanes = columns / together, parts = threads / lanes, part = thread / lanes;\n"
      "  const int from = static_cast<int>(blockIdx.y) * columns + thread % lanes * together;\n"
      "  double sums[S][4] = {};\n"
      "  if (part < parts && from < channels) {\n"
      "#pragma unroll 4\n"
      "    for (int b = part; b < static_cast<int>(gridDim.x); b += parts)\n"
      "#pragma unroll\n"
      "      for (int a = 0; a < S; ++a) {\n"
      "        const float* at = partial + ((first_block + b) * S + a) * channels + from;\n"
      "        const float4 v = together == 4 ? __ldcg(reinterpret_cast<const float4*>(at))\n"
      "                                       : make_float4(__ldcg(at), 0, 0, 0);\n"
      "        sums[a][0] += v.x;\n"
      "        sums[a][1] += v.y;\n"
      "        sums[a][2] += v.z;\n"
      "        sums[a][3] += v.w;\n"
      "      }\n"
      "  }\n"
      "  double totals[S];\n"
      "#pragma unroll\n"
      "  for (int a = 0; a < S; ++a) {\n"
      "    if (part < parts)\n"
      "      for (int k = 0; k < together; ++k) sliced[part * columns + thread % lanes * together + k] = sums[a][k];\n"
      "    __syncthreads();\n"
      "    totals[a] = 0;\n"
      "    if (ends)\n"
      "      for (int q = 0; q < parts; ++q) totals[a] += sliced[q * columns + column];\n"
      "    __syncthreads();\n"
      "  }\n";
  for (int a = 0; a < kernel_.sums; ++a) text += fmt::format("  const double total{0} = totals[{0}];\n", a);
  return text + "  if (first_thread) *counter = 0;\n  if (!ends) return;\n" + finish_;
}

// For one tensor shape: channels along x; rows along y and the grid. At least two blocks must fit into a multiprocessor
// at a time: with more registers than that, one block alone waits for its own loads and arithmetic.
std::string FusedWriter::single_head() const {
  std::string text;
  if (!kernel_.numbers.empty()) text += fmt::format("struct Numbers {{ unsigned v[{}]; }};\n", kernel_.numbers.size());
  text += fmt::format("extern \"C\" __global__ void __launch_bounds__(256, {}) pass(\n", reads_one_tensor() ? 3 : 2);
  for (size_t i = 0; i < inputs_.size(); ++i)
    text += fmt::format("    const {}* i{},\n", type_text(graph_.type(inputs_[i]).dtype), i);
  for (size_t o = 0; o < outputs_.size(); ++o)
    text += fmt::format("    {}* o{},\n", type_text(graph_.type(outputs_[o]).dtype), o);
  text += fmt::format("    float* partial, unsigned* counters, long long rows, int channels{}) {{\n",
                      kernel_.numbers.empty() ? "" : ", const __grid_constant__ Numbers numbers");
  text +=
      "  const bool first_thread = threadIdx.x == 0 && threadIdx.y == 0;\n"
      "  const int c0 = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * W;\n"
      "  const bool inside = c0 < channels;\n"
      "  const long long begin = static_cast<long long>(blockIdx.x) * blockDim.y + threadIdx.y, end = rows;\n"
      "  const long long step = static_cast<long long>(gridDim.x) * blockDim.y;\n"
      "  const long long first_row = static_cast<long long>(blockIdx.z) * rows;\n";
  return text;
}

// For many tensors: each block finds its part in the table and processes a range of it.
std::string FusedWriter::table_head() const {
  const size_t pointers = inputs_.size() + outputs_.size();
  std::string text = fmt::format(
      "struct Table {{ int first[{0} + 1]; long long elements[{0}]; void* data[{0}][{1}]; }};\n"
      "extern \"C\" __global__ void __launch_bounds__(256) pass(const __grid_constant__ Table table) {{\n"
      "  const bool first_thread = threadIdx.y == 0;\n"
      "  int part = 0;\n"
      "  for (int half = {2}; half > 0; half /= 2)\n"
      "    if (part + half < {0} && table.first[part + half] <= static_cast<int>(blockIdx.x)) part += half;\n",
      parts_, pointers, std::bit_ceil(parts_));
  for (size_t i = 0; i < inputs_.size(); ++i)
    text += fmt::format("  const {0}* i{1} = static_cast<const {0}*>(table.data[part][{1}]);\n",
                        type_text(graph_.type(inputs_[i]).dtype), i);
  for (size_t o = 0; o < outputs_.size(); ++o)
    text += fmt::format("  {0}* o{1} = static_cast<{0}*>(table.data[part][{2}]);\n",
                        type_text(graph_.type(outputs_[o]).dtype), o, inputs_.size() + o);
  text += fmt::format(
      "  constexpr int channels = W, c0 = 0;\n"
      "  constexpr long long first_row = 0;\n"
      "  constexpr bool inside = true;\n"
      "  const long long elements = table.elements[part], rows = (elements + W - 1) / W;\n"
      "  const long long stretch = (static_cast<int>(blockIdx.x) - table.first[part]) * {0}LL;\n"
      "  const long long begin = stretch + threadIdx.y, end = stretch + {0} < rows ? stretch + {0} : rows;\n"
      "  const long long step = blockDim.y;\n",
      kRowsPerBlock);
  return text;
}

// Whether the kernel loads at most one tensor and adds up nothing: it needs few registers, so three of its blocks fit
// into a multiprocessor.
bool FusedWriter::reads_one_tensor() const {
  return kernel_.sums == 0 && std::count(loaded_.begin(), loaded_.end(), true) <= 1;
}

std::string FusedWriter::assemble() const {
  const auto loads = std::count(loaded_.begin(), loaded_.end(), true);
  // Number of rows loaded before the first is used, to hide memory latency. More would need too many registers. Where
  // three blocks share a multiprocessor, they hide each other's latency.
  const int unroll = loads <= 1 && !reads_one_tensor() ? 8 : loads <= 3 ? 4 : 2;
  // The last row of a part may be shorter.
  const char* const limit = parts_ > 0 ? ", elements - at" : "";
  std::string text = fused_prelude();
  text += fmt::format("constexpr int W = {};\nconstexpr int U = {};\n", kernel_.width, unroll);
  text +=
      "template <typename T> using Pack = PackOf<T, W>;\n"
      "template <typename T> __device__ inline Pack<T> load(const T* p) { return *reinterpret_cast<const Pack<T>*>(p); "
      "}\n"
      "template <typename T> __device__ inline void store(T* p, Pack<T> q) { *reinterpret_cast<Pack<T>*>(p) = q; }\n"
      "template <typename T> __device__ inline Pack<T> load(const T* p, long long left) {\n"
      "  if (left >= W) return load(p);\n"
      "  Pack<T> q = {};\n"
      "#pragma unroll\n"
      "  for (int k = 0; k < W; ++k) if (k < left) q.v[k] = p[k];\n"
      "  return q;\n"
      "}\n"
      "template <typename T> __device__ inline void store(T* p, Pack<T> q, long long left) {\n"
      "  if (left >= W) return store(p, q);\n"
      "#pragma unroll\n"
      "  for (int k = 0; k < W; ++k) if (k < left) p[k] = q.v[k];\n"
      "}\n\n";
  text += parts_ > 0 ? table_head() : single_head();
  text += shared_;
  if (!shared_.empty()) text += "  __syncthreads();\n";
  for (int a = 0; a < kernel_.sums; ++a) text += fmt::format("  float a{}[W] = {{}};\n", a);
  text += "  if (inside) {\n" + vectors_text_;
  text += "    for (long long r0 = begin; r0 < end; r0 += U * step) {\n";
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (loaded_[i]) text += fmt::format("      Pack<{}> p{}[U];\n", type_text(graph_.type(inputs_[i]).dtype), i);
  // Kernels with sums start at the last row: it may still be in the cache from the previous kernel, and the first rows,
  // read last, may still be in the cache for the next kernel.
  const std::string each_row = fmt::format(
      "#pragma unroll\n"
      "      for (int u = 0; u < U; ++u) {{\n"
      "        if (r0 + u * step >= end) break;\n"
      "        const long long at = (first_row + {}r0 + u * step{}) * channels + c0;\n",
      kernel_.sums > 0 ? "rows - 1 - (" : "", kernel_.sums > 0 ? ")" : "");
  text += each_row;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (loaded_[i]) text += fmt::format("        p{0}[u] = load(i{0} + at{1});\n", i, limit);
  text += "      }\n" + each_row + row_;
  for (int o : stored_)
    text += fmt::format("        Pack<{}> q{};\n", type_text(graph_.type(outputs_[static_cast<size_t>(o)]).dtype), o);
  text += "#pragma unroll\n        for (int k = 0; k < W; ++k) {\n";
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (loaded_[i]) text += fmt::format("          const float x{0} = to_float(p{0}[u].v[k]);\n", i);
  text += body_ + "        }\n";
  for (int o : stored_) text += fmt::format("        store(o{0} + at, q{0}{1});\n", o, limit);
  text += "      }\n    }\n  }\n";
  if (kernel_.sums > 0) text += finish_text();
  return text + "}\n";
}

Status FusedWriter::plan(size_t parts) {
  parts_ = parts;
  if (!find_shape()) return fail(ErrorCode::kUnsupported, "tensors of different shapes cannot share one fused kernel");
  choose_width();
  loaded_.assign(inputs_.size(), false);
  for (at_ = 0; at_ < nodes_.size(); ++at_) {
    const FusedForm form = fused_form(node().op);
    if (form == nullptr)
      return fail(ErrorCode::kUnsupported, fmt::format("{} has no form for fused kernels", node().op));
    form(*this);
    if (!error_.empty()) return fail(ErrorCode::kUnsupported, error_);
  }
  if (parts_ > 0 && (by_channel_ || kernel_.sums > 0))
    return fail(ErrorCode::kUnsupported, "the parts of a group cannot use channel vectors or sums");
  return {};
}

Result<FusedKernel> FusedWriter::run(bool with_source, size_t parts) {
  PLIMSOLL_TRY(plan(parts));
  if (with_source) kernel_.source = assemble();
  return std::move(kernel_);
}

namespace {

Result<FusedKernel> kernel_of(const Graph& graph, const Node& node, bool with_source) {
  if (node.body && node.body->name == kGroupBody) return make_group_kernel(*node.body, with_source);
  if (node.body)
    return FusedWriter(*node.body, node.body->nodes, node.body->inputs, node.body->outputs).run(with_source);
  return FusedWriter(graph, {&node, 1}, node.inputs, node.outputs).run(with_source);
}

}  // namespace

Result<FusedKernel> make_fused_kernel(const Graph& graph, const Node& node) {
  return kernel_of(graph, node, true);
}

Result<FusedKernel> plan_fused_kernel(const Graph& graph, const Node& node) {
  return kernel_of(graph, node, false);
}

int64_t part_blocks(const FusedKernel& pass, const FusedKernel::Part& part) {
  return ((part.elements + pass.width - 1) / pass.width + kRowsPerBlock - 1) / kRowsPerBlock;
}

bool has_fused_form(const Graph& graph, const Node& node) {
  if (node.op == "reduce_to") {
    const Shape &x = graph.type(node.inputs[0]).shape, &y = graph.type(node.outputs[0]).shape;
    const int64_t segments = summed_segments(x, y);
    return segments > 0 && segments * ((x.back() + kLeastColumns - 1) / kLeastColumns) <= kMostSegments;
  }
  if (node.op == "broadcast") {
    const TensorType &x = graph.type(node.inputs[0]), &y = graph.type(node.outputs[0]);
    const bool number = x.dtype == DType::kFloat32 || is_half(x.dtype);
    return number && y.shape.rank() > 0 && y.shape.elements() < (int64_t{1} << 31);
  }
  if (node.op == "cast") {
    const DType to = graph.type(node.outputs[0]).dtype;
    return to == DType::kFloat32 || to == DType::kFloat16 || to == DType::kBFloat16;
  }
  return fused_form(node.op) != nullptr;
}

FusedGrid grid_of(const FusedKernel& pass, const Card& card) {
  FusedGrid grid;
  if (!pass.parts.empty()) {
    grid.block_y = kThreads;
    grid.grid_x = 0;
    for (const FusedKernel::Part& part : pass.parts) grid.grid_x += static_cast<unsigned>(part_blocks(pass, part));
    return grid;
  }
  const auto groups = static_cast<unsigned>((pass.channels + pass.width - 1) / pass.width);
  grid.block_x = std::min(groups, pass.sums > 0 ? kSummingLanes : kLanes);
  grid.block_y = std::max(1U, kThreads / grid.block_x);
  grid.grid_y = (groups + grid.block_x - 1) / grid.block_x;
  grid.grid_z = static_cast<unsigned>(pass.segments);
  const int64_t needed = (pass.rows + grid.block_y - 1) / grid.block_y;
  const int64_t columns = static_cast<int64_t>(grid.grid_y) * grid.grid_z;
  const auto blocks = [&](int64_t per_multiprocessor) {
    return std::max<int64_t>(1, per_multiprocessor * card.multiprocessors / columns);
  };
  // Kernels with sums use few blocks, because the last block reads the partial sums of all of them. Kernels without
  // sums use enough blocks to fill the card; but a thread first prepares the numbers of its channels, so it should have
  // several rows to use them for.
  constexpr int64_t kFew = 2, kMany = 16, kRowsPerThread = 16;
  int64_t wanted = needed;
  if (pass.sums == 0 && pass.channels > pass.width)
    wanted = std::max(std::min(needed, blocks(kFew)), needed / kRowsPerThread);
  grid.grid_x = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, blocks(pass.sums > 0 ? kFew : kMany)));
  return grid;
}

Bytes FusedKernel::workspace(const Card& card) const {
  if (sums == 0) return 0;
  return align_up(static_cast<Bytes>(grid_of(*this, card).grid_x) * segments * sums * channels * 4);
}

}  // namespace plimsoll::engine::cuda
