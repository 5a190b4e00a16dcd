// Texts through the steps of Keras's text layers. The first byte chooses the layer and its options, the first line
// after it is the vocabulary, and the rest is one string.
#include <algorithm>
#include <array>
#include <vector>

#include "base/utf8.h"
#include "model/text/text_layer.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

Json vocabulary(std::string_view line) {
  Json tokens = Json::array();
  for (size_t begin = 0; begin < line.size() && tokens.size() < 64;) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    const auto token = line.substr(begin, end - begin);
    if (is_utf8(token)) tokens.push_back(std::string(token));
    begin = end + 1;
  }
  return tokens;
}

Json layer_config(uint8_t choice, std::string_view line) {
  constexpr std::array kSteps = {"lower_and_strip_punctuation", "lower", "strip_punctuation"};
  constexpr std::array kModes = {"int", "multi_hot", "count", "int"};
  Json config = {{"standardize", kSteps[choice % kSteps.size()]},
                 {"split", (choice & 1) != 0 ? "character" : "whitespace"},
                 {"output_mode", kModes[choice / 2 % kModes.size()]},
                 {"vocabulary", vocabulary(line)}};
  if (choice / 8 % 4 > 0) config["ngrams"] = choice / 8 % 4;
  if (choice / 32 % 2 > 0) config["output_sequence_length"] = 7;
  if (choice > 127)
    config = {{"vocabulary", vocabulary(line)}, {"num_oov_indices", 3}, {"output_mode", kModes[choice % 4]}};
  return config;
}

void check_characters(std::string_view text) {
  Tokens characters(text, TextSplit::kCharacter);
  for (std::string_view one; characters.next(one);)
    if (one.empty() || one.size() > 4 || !is_utf8(one)) found("a character that is none");
}

void run(Input input) {
  if (input.empty()) return;
  const std::string_view rest(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  const size_t end = std::min(rest.find('\n'), rest.size());
  const Json config = layer_config(input[0], rest.substr(0, end));
  const std::string_view text = end < rest.size() ? rest.substr(end + 1) : std::string_view();
  check_characters(text);
  Issues issues;
  Config reader(config, "layer", issues);
  const auto layer = read_text_layer(input[0] > 127 ? "StringLookup" : "TextVectorization", reader);
  if (const Status status = issues.status(); !status) return check_error(status);
  Issues shape_issues;
  const OpenDims dims = layer->row({1}, shape_issues, "layer");
  TextWriter writer(*layer, static_cast<Bytes>(text.size()));
  const Bytes planned = writer.bytes();
  int64_t elements = 1;
  for (const auto& d : dims) elements *= d.value_or(11);
  std::vector<std::byte> row(static_cast<size_t>(elements * size_of(layer->dtype()))), again(row.size());
  for (auto* into : {&row, &again}) {
    std::string copy(text);
    writer.begin(into->data(), elements);
    check_error(writer.add(copy));
    writer.end();
  }
  if (writer.bytes() != planned) found("the memory of a writer grew");
  if (row != again) found("the same text gives different rows");
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
