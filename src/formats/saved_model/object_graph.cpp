#include "formats/saved_model/object_graph.h"

#include <fmt/format.h>

#include "formats/file/file.h"
#include "formats/hdf5/reader.h"
#include "formats/limits.h"
#include "formats/saved_model/protobuf.h"

namespace plimsoll::engine {
namespace {

// TrackableObject: {children = 1 {node_id = 1, local_name = 2}, attributes = 2 {name = 1, checkpoint_key = 3},
// slot_variables = 3 {original_variable_node_id = 1, slot_name = 2, slot_variable_node_id = 3}}
bool parse_object(std::span<const std::byte> message, CheckpointObject& object) {
  ProtoReader fields(message);
  bool good = true;
  while (fields.next()) {
    ProtoReader inner(fields.bytes());
    if (fields.field() == 1) {
      size_t node = 0;
      std::string name;
      while (inner.next()) {
        if (inner.field() == 1) node = inner.number();
        if (inner.field() == 2) name = inner.text();
      }
      object.children.emplace(std::move(name), node);
    } else if (fields.field() == 2) {
      std::string name, key;
      while (inner.next()) {
        if (inner.field() == 1) name = inner.text();
        if (inner.field() == 3) key = inner.text();
      }
      if (name == "VARIABLE_VALUE") object.tensor = std::move(key);
    } else if (fields.field() == 3) {
      CheckpointObject::Slot slot;
      while (inner.next()) {
        if (inner.field() == 1) slot.variable = inner.number();
        if (inner.field() == 2) slot.name = inner.text();
        if (inner.field() == 3) slot.state = inner.number();
      }
      object.slots.push_back(std::move(slot));
    } else {
      continue;
    }
    good = good && inner.ok();
  }
  return good && fields.ok();
}

}  // namespace

Result<ObjectGraph> ObjectGraph::parse(const std::string& text, const std::string& label) {
  ObjectGraph graph;
  ProtoReader nodes(bytes_of_text(text));
  while (nodes.next()) {
    if (nodes.field() != 1) continue;
    if (graph.objects_.size() >= static_cast<size_t>(limits::kGraphObjects))
      return bad_weights(label, fmt::format("its object graph has more than {} objects", limits::kGraphObjects));
    graph.objects_.emplace_back();
    if (!parse_object(nodes.bytes(), graph.objects_.back())) return bad_weights(label, "its object graph is damaged");
  }
  if (!nodes.ok() || graph.objects_.empty()) return bad_weights(label, "its object graph is damaged");
  const size_t count = graph.objects_.size();
  for (const CheckpointObject& object : graph.objects_) {
    for (const auto& [name, child] : object.children)
      if (child >= count) return bad_weights(label, "its object graph refers to an object that it does not have");
    for (const CheckpointObject::Slot& slot : object.slots)
      if (slot.variable >= count || slot.state >= count)
        return bad_weights(label, "its object graph refers to an object that it does not have");
  }
  return graph;
}

const CheckpointObject* ObjectGraph::find(const CheckpointObject& from,
                                          std::initializer_list<std::string_view> names) const {
  const CheckpointObject* object = &from;
  for (const std::string_view name : names) {
    const auto child = object->children.find(name);
    if (child == object->children.end()) return nullptr;
    object = &objects_[child->second];
  }
  return object;
}

std::vector<std::string> ObjectGraph::list(const CheckpointObject* object) const {
  std::vector<std::string> tensors;
  if (object == nullptr) return tensors;
  for (size_t i = 0;; ++i) {
    const auto child = object->children.find(fmt::format("{}", i));
    if (child == object->children.end()) return tensors;
    if (const std::string& tensor = objects_[child->second].tensor; !tensor.empty()) tensors.push_back(tensor);
  }
}

}  // namespace plimsoll::engine
