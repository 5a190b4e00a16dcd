// The intermediate representation: SSA values with static shapes, and nodes in program order.
//
// A graph is plain data. Passes read one graph and build another; nothing in a graph points into a backend. Values that
// outlive a run of the graph (weights, optimizer state, statistics, accumulators, step scalars) are `persistent` and
// identified across graphs by their name. A graph never writes a persistent value in place. Instead it lists `updates`,
// each of which says: after the run, persistent value P holds the contents of `value`. The planner turns an update into
// a write over P after P's last reader has run.
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

// The purpose of a byte. Every byte of an arena has one category, and reports group by it. Categories affect nothing
// but reports.
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

// The memory that a value lies in, by number: the device's arena or host memory. Further numbers are further memories,
// such as those of other devices; a plan lists its memories (plan/plan.h).
enum class Space : uint8_t { kDevice, kHost };
inline constexpr int kMostSpaces = 16;
std::string to_text(Space space);  // "device", "host" or the number
std::optional<Space> space_from_text(std::string_view text);

// The queue that a node runs on. A node on a queue other than kCompute runs concurrently with the compute nodes that
// follow it. It has certainly finished only after a compute node has waited for it.
enum class Queue : uint8_t { kCompute, kToHost, kFromHost };
std::string_view name_of(Queue queue);
std::optional<Queue> queue_from_name(std::string_view name);

// The part of a training step that a node belongs to. A forward node that is recomputed for the backward pass stays a
// forward node.
enum class Stage : uint8_t { kForward, kBackward, kUpdate };
std::string_view name_of(Stage stage);
std::optional<Stage> stage_from_name(std::string_view name);

// A class of its own to work around libstdc++ 12, which assumes that a variant of numbers, strings and vectors always
// holds a value. If copying such a variant throws, it destroys an object that was never constructed. With another class
// among the alternatives, it checks first.
struct AttrList : std::vector<int64_t> {
  using std::vector<int64_t>::vector;
  AttrList(std::vector<int64_t> list) : std::vector<int64_t>(std::move(list)) {}  // NOLINT: implicit on purpose
};
using Attr = std::variant<int64_t, double, bool, std::string, AttrList>;

// Attributes by name, sorted, so that printing is deterministic.
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
  std::string layer;        // the name of the user's layer that it comes from; may be empty
  bool persistent = false;  // an input of the graph that outlives the run
  NodeId producer = kNone;  // kNone: an input of the graph
  // Set by lower/: the physical layout, named by the backend ("" is row-major), and its size in bytes with padding.
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
  std::shared_ptr<const Graph> body;  // only for op "fused": the element-wise nodes that it runs as one kernel
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
  ValueId find(std::string_view name) const;  // kNone if there is no value with this name
};

// For each value, the nodes that read it, in program order.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

// The text form. parse(print(g)) gives g again, and printing that gives the same text.
//
//   graph "train"
//     %x = input f32[32,28,28,1] inputs
//     %dense/kernel = input f32[784,10] weights persistent layer="dense"
//     %1 = reshape(%x) {shape=[32,784]} : f32[32,784] activations layer="flatten"
//     %y, %index = max_pool2d(%1) {pool=[2,2]} : f32[32,14,14,1] activations, u8[32,14,14,1] activations
//     output %y
//     update %dense/kernel <- %2
//
// Only exceptions are written. `space=host` after a category: the value lies in host memory. `stage=backward` or
// `stage=update` at the end of a node's line: the node is not part of the forward pass. `queue=to_host` or
// `queue=from_host`: the node runs concurrently with the computation.
// The body of a fused node follows it between lines `{` and `}`.
std::string print(const Graph& graph);
Result<Graph> parse_graph(std::string_view text);

// Checks the structure: ids are in range, names are unique, every value has one producer and is written before it is
// read, updates target persistent values of the same type. `verify` in ops/op.h also checks the ops' own rules. Fails
// with kInternal, because only a bug in Plimsoll can cause a violation.
Status verify_structure(const Graph& graph);

}  // namespace plimsoll::engine
