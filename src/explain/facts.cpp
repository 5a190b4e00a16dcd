#include "explain/facts.h"

#include <algorithm>

namespace plimsoll::engine::explain {
namespace {

// Making the table takes much longer than copying it.
const PhraseTable& all_phrases() {
  static const PhraseTable table = [] {
    std::vector<Phrase> phrases;
    add_tensorflow_phrases(phrases);
    add_torch_phrases(phrases);
    add_xla_phrases(phrases);
    add_host_phrases(phrases);
    return PhraseTable(std::move(phrases));
  }();
  return table;
}

template <typename Fact>
void in_order(std::vector<Fact>& list) {
  std::stable_sort(list.begin(), list.end(), [](const Fact& a, const Fact& b) { return a.seen.line < b.seen.line; });
}

}  // namespace

void Chunks::add(Bytes size, int64_t how_many) {
  if (size <= 0 || how_many <= 0) return;
  int64_t& number = count[size];
  number = std::min<int64_t>(number + std::min<int64_t>(how_many, 1'000'000'000), 1'000'000'000);
  if (count.size() > kMostSizes) count.erase(count.begin());
}

LogReader::LogReader()
    : table_(all_phrases()), cutter_([this](const LogLine& line) {
        const auto stream = static_cast<size_t>(line.stream);
        while (tapes_.size() <= stream) tapes_.emplace_back(table_, facts_);
        tapes_[stream].add(line);
      }) {}

void LogReader::feed(std::string_view bytes) {
  cutter_.feed(bytes);
}

Facts LogReader::finish() {
  cutter_.finish();
  for (Tape& tape : tapes_) tape.finish();
  // Each stream is read with its own delay. What failed first is what the others followed.
  in_order(facts_.pools);
  in_order(facts_.tensors);
  in_order(facts_.device_refusals);
  in_order(facts_.torch);
  in_order(facts_.xla);
  in_order(facts_.arrays);
  facts_.lines = cutter_.lines();
  return std::move(facts_);
}

}  // namespace plimsoll::engine::explain
