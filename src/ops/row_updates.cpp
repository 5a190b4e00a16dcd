// sgd_rows and adam_rows update an embedding table directly from dy and the ids, the inputs of its embedding_grad,
// without storing the gradient. Both are exactly equal to the dense update, as in Keras on TensorFlow: the state of
// rows that no id names decays too. Lowering creates these ops if the gradient has no other reader.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kGradient = 1;  // the update's gradient input, which dy and the ids replace

// Returns the inputs of the update itself: the gradient replaces dy and the ids.
template <typename T>
std::vector<T> with_gradient(std::span<const T> in, const T& gradient) {
  std::vector<T> list(in.begin(), in.end());
  list.erase(list.begin() + kGradient);
  list[kGradient] = gradient;
  return list;
}

Result<Types> infer_rows(const OpDef& gradient, const OpDef& update, const std::string& name, InTypes in,
                         const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.require(in.size() > kGradient + 1, "takes a table, dy, ids and the update's other inputs") ||
      !check.rank(0, 2) || !check.floats({0, kGradient}))
    return check.failed();
  auto sums = gradient.infer(in.subspan(kGradient, 2), {{"rows", in[0].shape[0]}});
  if (!sums) return failed_inside(name, sums.error());
  sums->front().dtype = in[0].dtype;  // the sums have the table's dtype, whatever dy has
  auto types = update.infer(with_gradient(in, sums->front()), attrs);
  if (!types) return failed_inside(name, types.error());
  return types;
}

void reference_rows(const OpDef& gradient, const OpDef& update, const ReferenceCall& call) {
  std::vector<double> sums(static_cast<size_t>(call.inputs[0].elements()));
  const TensorView view{call.inputs[0].type, sums.data()};
  gradient.reference({call.inputs.subspan(kGradient, 2), {&view, 1}, Attrs{}});
  const auto inputs = with_gradient(call.inputs, view);
  update.reference({inputs, call.outputs, call.attrs});
}

struct TableCase {
  std::string name;
  int64_t rows, width, tokens;
  std::string dy, ids;  // distributions
};

// Inputs: the table, dy and the ids, then the inputs that follow the gradient in the update's own case.
OpCase case_of(const OpCase& of_update, const TableCase& table) {
  const TensorType weight = f32({table.rows, table.width});
  OpCase one{of_update.name + "_" + table.name,
             {weight, f32({table.tokens, table.width}), i32({table.tokens})},
             of_update.attrs,
             {of_update.fill[0], table.dy, table.ids},
             {}};
  for (size_t i = kGradient + 1; i < of_update.inputs.size(); ++i) {
    const bool whole = of_update.inputs[i].shape.rank() > 0;  // state, not a scalar
    one.inputs.push_back(whole ? weight : of_update.inputs[i]);
    one.fill.push_back(of_update.fill[i]);
  }
  return one;
}

// For each case of the update: repeated and missing ids; one id so often that its tokens are summed in pieces; ids out
// of range; rows of one element; rows that are read 16 bytes at a time.
std::vector<OpCase> cases_of(const OpDef& update) {
  const TableCase tables[] = {{"repeats", 11, 6, 15, "normal", "labels:7"},
                              {"one_id", 5, 3, 203, "uniform", "value:3"},
                              {"no_row", 13, 8, 40, "normal", "labels:29"},
                              {"one_element", 1, 1, 1, "normal", "labels:1"},
                              {"wide", 41, 136, 70, "normal", "labels:37"}};
  std::vector<OpCase> cases;
  for (const OpCase& of_update : update.cases)
    for (const TableCase& table : tables) cases.push_back(case_of(of_update, table));
  return cases;
}

OpDef rows_of(const OpDef& gradient, const OpDef& update) {
  OpDef op;
  op.name = update.name + "_rows";
  op.in_place = update.in_place;
  for (InPlace& pair : op.in_place) pair.input += pair.input > kGradient ? 1 : 0;
  op.infer = [gradient, update, name = op.name](InTypes in, const Attrs& attrs) {
    return infer_rows(gradient, update, name, in, attrs);
  };
  op.reference = [gradient, update](const ReferenceCall& call) { reference_rows(gradient, update, call); };
  // Adam squares the sums, which doubles their relative error.
  op.error_units = 2 * gradient.error_units + update.error_units;
  op.cases = cases_of(update);
  return op;
}

}  // namespace

std::vector<OpDef> row_update_ops() {
  std::vector<OpDef> ops;
  const std::vector<OpDef> tables = embedding_ops();
  const OpDef& gradient = op_of(tables, "embedding_grad");
  for (const OpDef& update : optimizer_ops())
    if (update.name == "sgd" || update.name == "adam") ops.push_back(rows_of(gradient, update));
  return ops;
}

}  // namespace plimsoll::engine
