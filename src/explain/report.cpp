#include "explain/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/printable.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMostEvidence = 6, kColumns = 100;

std::string shown(const std::string& text) {
  std::string safe = printable(text);
  if (safe.size() <= kColumns) return safe;
  size_t cut = kColumns;
  while (cut > 0 && (static_cast<unsigned char>(safe[cut]) & 0xC0) == 0x80) --cut;  // not inside a character
  return safe.substr(0, cut) + "...";
}

std::string evidence_text(const Verdict& verdict) {
  std::string text;
  for (size_t i = 0; i < verdict.evidence.size() && i < kMostEvidence; ++i)
    text += fmt::format("  line {:<7} {}\n", verdict.evidence[i].line, shown(verdict.evidence[i].text));
  return text;
}

std::string figures_text(const Verdict& verdict) {
  size_t width = 0;
  for (const Figure& figure : verdict.figures) width = std::max(width, figure.name.size());
  std::string text;
  for (const Figure& figure : verdict.figures)
    text += fmt::format("  {:<{}}  {:>9}  {:>18}\n", printable(figure.name), width, format_bytes(figure.bytes),
                        count_words(figure.bytes));
  return text;
}

std::string chunks_text(const Verdict& verdict) {
  std::string text;
  for (const ChunkLine& chunk : verdict.chunks) {
    text += fmt::format("  {:>5} x {:>9}  {:>18}", chunk.count, format_bytes(chunk.bytes), count_words(chunk.bytes));
    for (size_t i = 0; i < chunk.what.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "  " : "; ", printable(chunk.what[i]));
    text += "\n";
  }
  return text;
}

std::string list_text(const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = "\n" + heading + "\n";
  for (const std::string& line : lines) text += fmt::format("  {}\n", printable(line));
  return text;
}

nlohmann::ordered_json sightings_json(const std::vector<Sighting>& sightings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Sighting& one : sightings) list.push_back(ordered_object({{"line", one.line}, {"text", one.text}}));
  return list;
}

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::array(), chunks = nlohmann::ordered_json::array();
  for (const Figure& figure : verdict.figures)
    figures.push_back(ordered_object({{"name", figure.name}, {"bytes", figure.bytes}}));
  for (const ChunkLine& chunk : verdict.chunks)
    chunks.push_back(ordered_object({{"bytes", chunk.bytes}, {"count", chunk.count}, {"what", chunk.what}}));
  return ordered_object({{"cause", std::string(name_of(verdict.cause))},
                         {"certainty", std::string(name_of(verdict.certainty))},
                         {"disguised", verdict.disguised},
                         {"where", verdict.where},
                         {"summary", verdict.summary},
                         {"figures", figures},
                         {"chunks", chunks},
                         {"why", verdict.why},
                         {"remedies", verdict.remedies},
                         {"evidence", sightings_json(verdict.evidence)}});
}

std::string harmless_text(const Explanation& explanation) {
  std::string text;
  for (size_t i = 0; i < explanation.harmless.size() && i < 2; ++i)
    text += fmt::format("  line {:<7} {}\n", explanation.harmless[i].line, shown(explanation.harmless[i].text));
  if (text.empty()) return "";
  return fmt::format("\nharmless: {} probe{} for a workspace, after which TensorFlow chose a slower kernel\n{}",
                     explanation.harmless.size(), explanation.harmless.size() > 1 ? "s" : "", text);
}

}  // namespace

std::string explanation_text(const Explanation& explanation) {
  const Verdict& verdict = explanation.verdict;
  const bool none = verdict.cause == Cause::kNoOutOfMemory;
  std::string text = fmt::format("{}", title_of(verdict.cause));
  if (!verdict.where.empty()) text += fmt::format(" [{}]", verdict.where);
  if (!none && verdict.cause != Cause::kNotEnough) text += fmt::format(" ({})", name_of(verdict.certainty));
  text += fmt::format("\n{}\n", printable(verdict.summary));
  if (none) return text + fmt::format("{} lines read\n", count_words(explanation.lines)) + harmless_text(explanation);
  text += "\n" + evidence_text(verdict);
  if (!verdict.figures.empty()) text += "\nthe sums\n" + figures_text(verdict);
  if (!verdict.chunks.empty()) text += "\nthe largest pieces\n" + chunks_text(verdict);
  text += list_text("why", verdict.why);
  text += list_text(verdict.cause == Cause::kNotEnough ? "what would tell" : "what helps", verdict.remedies);
  for (const Verdict& other : explanation.also) {
    if (&other == explanation.also.data()) text += "\nalso in this log\n";
    text += fmt::format("  {}: {}\n", title_of(other.cause), printable(other.summary));
    if (!other.evidence.empty())
      text += fmt::format("    line {}  {}\n", other.evidence[0].line, shown(other.evidence[0].text));
  }
  return text + harmless_text(explanation);
}

nlohmann::ordered_json explanation_json(const Explanation& explanation) {
  nlohmann::ordered_json json = ordered_object({{"schema", "plimsoll.explain/1"},
                                                {"out_of_memory", explanation.verdict.cause != Cause::kNoOutOfMemory},
                                                {"lines", explanation.lines}});
  json.update(verdict_json(explanation.verdict));
  nlohmann::ordered_json also = nlohmann::ordered_json::array();
  for (const Verdict& other : explanation.also) also.push_back(verdict_json(other));
  json["also"] = also;
  json["harmless"] = sightings_json(explanation.harmless);
  return json;
}

}  // namespace plimsoll::engine::explain
