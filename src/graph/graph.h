// The intermediate representation: SSA values with static shapes, and nodes in program order.
//
// A graph is plain data. Passes read one and build another; nothing in it points into a backend. Values that outlive a
// run of the graph (weights, optimizer state, statistics, accumulators, step scalars) are `persistent` and identified
// across graphs by their name. A graph never writes a persistent value in place; it lists `updates`: "when the run is
// over, persistent value P holds what `value` held". The planner turns that into writing over P once its last reader
// has run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

// What a byte is for: every byte of an arena has one of these, and reports group by it. Nothing else is decided by it.
enum class Category : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kInputs,
  kWorkspace,
  kTemporaries,
  kFragmentation
};
std::string_view name_of(Category category);
std::optional<Category> category_from_name(std::string_view name);

// A memory that values lie in, by its number: the device's arena, the host's memory beside it. Further numbers are
// further memories, other devices' for one; which there are, a plan lists (plan/plan.h).
enum class Space : uint8_t { kDevice, kHost };
inline constexpr int kMostSpaces = 16;
std::string to_text(Space space);  // "device", "host", or the number
std::optional<Space> space_from_text(std::string_view text);

// What nodes wait in line for. Work on another queue than compute's runs beside the nodes behind it: it is over when a
// node on the compute queue has waited for it.
enum class Queue : uint8_t { kCompute, kToHost, kFromHost };
std::string_view name_of(Queue queue);
std::optional<Queue> queue_from_name(std::string_view name);

// The part of a training step that a node belongs to. A node that is made again for the backward pass stays a forward
// one.
enum class Stage : uint8_t { kForward, kBackward, kUpdate };
std::string_view name_of(Stage stage);
std::optional<Stage> stage_from_name(std::string_view name);

// A type of its own because of libstdc++ 12: it takes a variant of numbers, strings and vectors for one that always
// holds a value, and where copying one fails it destroys what was never made. With another type among them it looks
// first.
struct AttrList : std::vector<int64_t> {
  using std::vector<int64_t>::vector;
  AttrList(std::vector<int64_t> list) : std::vector<int64_t>(std::move(list)) {}  // NOLINT: a list is a list
};
using Attr = std::variant<int64_t, double, bool, std::string, AttrList>;

// Attributes by name, ordered so that printing is deterministic.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> list) : map_(list) {}

  bool has(const std::string& key) const { return map_.count(key) != 0; }
  void set(const std::string& key, Attr value) { map_[key] = std::move(value); }
  int64_t integer(const std::string& key) const { return std::get<int64_t>(map_.at(key)); }
  double real(const std::string& key) const { return std::get<double>(map_.at(key)); }
  double real_or(const std::string& key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  bool flag(const std::string& key) const { return has(key) && std::get<bool>(map_.at(key)); }
  const std::string& text(const std::string& key) const { return std::get<std::string>(map_.at(key)); }
  const std::vector<int64_t>& list(const std::string& key) const { return std::get<AttrList>(map_.at(key)); }
  const std::map<std::string, Attr>& items() const { return map_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::map<std::string, Attr> map_;
};

struct Value {
  std::string name;  // unique in the graph
  TensorType type;
  Category category = Category::kActivations;
  std::string layer;        // the user's name for where it comes from; may be empty
  bool persistent = false;  // an input of the graph that outlives its run
  NodeId producer = kNone;  // kNone: an input of the graph
  // Chosen by lower/: the physical layout in the backend's words ("" is row-major) and its bytes, padding included.
  std::string layout;
  Bytes layout_bytes = 0;
  Space space = Space::kDevice;

  Bytes bytes() const { return layout.empty() ? type.bytes() : layout_bytes; }
};

struct Graph;

struct Node {
  std::string op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string layer;
  Stage stage = Stage::kForward;
  std::shared_ptr<const Graph> body;  // of op "fused" only: the element-wise nodes it runs in one pass
  Queue queue = Queue::kCompute;
};

struct Update {
  ValueId persistent = kNone;
  ValueId value = kNone;
  bool operator==(const Update&) const = default;
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;       // every value is produced before it is read
  std::vector<ValueId> inputs;   // values with no producer, in order of creation
  std::vector<ValueId> outputs;  // alive at the end of the run
  std::vector<Update> updates;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  ValueId find(std::string_view name) const;  // kNone if there is no such value
};

// For each value, the nodes that read it, in program order.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

// The text form; parse(print(g)) gives g again, to the letter when printed.
//
//   graph "train"
//     %x = input f32[32,28,28,1] inputs
//     %dense/kernel = input f32[784,10] weights persistent layer="dense"
//     %1 = reshape(%x) {shape=[32,784]} : f32[32,784] activations layer="flatten"
//     %y, %index = max_pool2d(%1) {pool=[2,2]} : f32[32,14,14,1] activations, u8[32,14,14,1] activations
//     output %y
//     update %dense/kernel <- %2
//
// What is not the rule stands behind: `space=host` behind a category says where the value lies; `stage=backward` or
// `stage=update` at the end of a node's line that it is not part of the forward pass, and `queue=to_host` or
// `queue=from_host` that it runs beside the computation.
// The body of a fused node follows it between lines `{` and `}`.
std::string print(const Graph& graph);
Result<Graph> parse_graph(std::string_view text);

// Structure: ids in range, names unique, one producer a value, read after written, updates of persistent values with
// equal types. ops/op.h's `verify` adds what the ops say. Returns kInternal: only we can cause it.
Status verify_structure(const Graph& graph);

}  // namespace plimsoll::engine
