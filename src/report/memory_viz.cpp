#include "report/memory_viz.h"

#include <algorithm>
#include <map>

#include "report/bands.h"

namespace plimsoll::engine {
namespace {

constexpr Bytes kBase = Bytes{1} << 44;  // addresses only need to differ

// Writes the few opcodes of a pickle that dictionaries, lists, texts and whole numbers need.
class Pickle {
 public:
  Pickle() { bytes_ = "\x80\x02"; }
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_dictionary() { bytes_ += "}("; }
  void end_dictionary() { bytes_ += 'u'; }
  void text(std::string_view value) {
    bytes_ += 'X';
    fixed(value.size(), 4);
    bytes_ += value;
  }
  void number(int64_t value) {  // LONG1 of 8 bytes
    bytes_ += "\x8a\x08";
    fixed(static_cast<uint64_t>(value), 8);
  }
  void item(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  void item(std::string_view key, int64_t value) {
    text(key);
    number(value);
  }
  std::string done() && { return std::move(bytes_) + "."; }

 private:
  void fixed(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  std::string bytes_;
};

struct Label {
  std::string layer, name, category;
};

void frames(Pickle& pickle, const Label& label) {
  pickle.text("frames");
  pickle.begin_list();
  for (const std::string& line : {label.name, label.category}) {
    pickle.begin_dictionary();
    pickle.item("name", line);
    pickle.item("filename", label.layer.empty() ? "(no layer)" : label.layer);
    pickle.item("line", int64_t{0});
    pickle.end_dictionary();
  }
  pickle.end_list();
}

void event(Pickle& pickle, std::string_view action, Bytes offset, Bytes bytes, double microseconds,
           const Label& label) {
  pickle.begin_dictionary();
  pickle.item("action", action);
  pickle.item("addr", kBase + offset);
  pickle.item("size", bytes);
  pickle.item("stream", int64_t{0});
  pickle.item("time_us", static_cast<int64_t>(microseconds));
  frames(pickle, label);
  pickle.end_dictionary();
}

// Appends the bands of a phase and returns the time at its end.
double phase_events(Pickle& pickle, const PhasePlan& phase, Bytes persistent, double begin) {
  const std::vector<Band> bands = transient_bands(phase, persistent);
  const auto nodes = static_cast<int>(phase.nodes.size());
  std::multimap<int, const Band*> ends;
  const auto label = [&](const Band& band) {
    return Label{band.layer, band.name, std::string(name_of(band.category)) + ", phase " + to_text(phase.name)};
  };
  const auto free_before = [&](int node, double time) {
    for (auto end = ends.begin(); end != ends.end() && end->first < node; end = ends.erase(end))
      for (const char* const action : {"free_requested", "free_completed"})
        event(pickle, action, end->second->offset, end->second->bytes, time, label(*end->second));
  };
  double time = begin;
  size_t next = 0;
  for (int n = 0; n < nodes; ++n) {
    free_before(n, time);
    for (; next < bands.size() && bands[next].first <= n; ++next) {
      event(pickle, "alloc", bands[next].offset, bands[next].bytes, time, label(bands[next]));
      ends.emplace(bands[next].last, &bands[next]);
    }
    time += phase.nodes[static_cast<size_t>(n)].seconds * 1e6;
  }
  free_before(nodes + 1, time);
  return time;
}

void segment(Pickle& pickle, const Plan& plan) {
  Bytes active = 0;
  for (const PersistentSlot& slot : plan.persistent) active += slot.bytes();
  pickle.begin_dictionary();
  pickle.item("device", int64_t{0});
  pickle.item("address", kBase);
  pickle.item("total_size", plan.arena_bytes);
  pickle.item("allocated_size", active);
  pickle.item("active_size", active);
  pickle.item("requested_size", active);
  pickle.item("stream", int64_t{0});
  pickle.item("segment_type", "large");
  pickle.text("blocks");
  pickle.begin_list();
  Bytes end = 0;
  const auto block = [&](Bytes offset, Bytes bytes, const char* state, const Label& label) {
    if (bytes <= 0) return;
    pickle.begin_dictionary();
    pickle.item("address", kBase + offset);
    pickle.item("size", bytes);
    pickle.item("requested_size", bytes);
    pickle.item("state", state);
    frames(pickle, label);
    pickle.end_dictionary();
  };
  for (const PersistentSlot& slot : plan.persistent) {
    block(end, slot.offset - end, "inactive", {});
    block(slot.offset, slot.bytes(), "active_allocated", {slot.layer, slot.name, std::string(name_of(slot.category))});
    end = slot.offset + slot.bytes();
  }
  block(end, plan.arena_bytes - end, "inactive", {});
  pickle.end_list();
  pickle.end_dictionary();
}

}  // namespace

std::string memory_viz(const Plan& plan) {
  Pickle pickle;
  pickle.begin_dictionary();
  pickle.text("segments");
  pickle.begin_list();
  segment(pickle, plan);
  pickle.end_list();
  pickle.text("device_traces");
  pickle.begin_list();
  pickle.begin_list();
  event(pickle, "segment_alloc", 0, plan.arena_bytes, 0, {"", "the arena", "one reservation"});
  for (const PersistentSlot& slot : plan.persistent)
    event(pickle, "alloc", slot.offset, slot.bytes(), 0, {slot.layer, slot.name, std::string(name_of(slot.category))});
  double time = 1;
  for (const PhasePlan& phase : plan.phases) time = phase_events(pickle, phase, plan.persistent_bytes, time) + 1;
  pickle.end_list();
  pickle.end_list();
  pickle.end_dictionary();
  return std::move(pickle).done();
}

}  // namespace plimsoll::engine
