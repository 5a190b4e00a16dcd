// Keras's layer classes of families that Plimsoll does not have yet. The error for one of them names the family, as
// docs/coverage.md does.
#include <algorithm>
#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

using Name = std::string_view;

constexpr std::array kSequences = {
    Name("GRUCell"), Name("LSTMCell"), Name("ReversibleEmbedding"), Name("SimpleRNNCell"), Name("StackedRNNCells"),
};

// All other preprocessing layers are called Random*.
constexpr std::array kPreprocessing = {
    Name("AugMix"),
    Name("AutoContrast"),
    Name("ContrastLimitedAdaptiveHistogramEqualization"),
    Name("CutMix"),
    Name("Equalization"),
    Name("HashedCrossing"),
    Name("MaxNumBoundingBoxes"),
    Name("MelSpectrogram"),
    Name("MixUp"),
    Name("Pipeline"),
    Name("RandAugment"),
    Name("STFTSpectrogram"),
    Name("Solarization"),
};

template <size_t n>
bool lists(const std::array<Name, n>& names, Name name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string_view later_family(std::string_view class_name) {
  if (lists(kSequences, class_name)) return "sequence layers";
  if (lists(kPreprocessing, class_name) || class_name.starts_with("Random")) return "preprocessing layers";
  return "";
}

}  // namespace plimsoll::engine
