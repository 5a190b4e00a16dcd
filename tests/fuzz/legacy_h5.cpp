// Opens a whole model in HDF5 as a stranger's file, reads its lists of weights, writes the file again as saving does,
// and reads that back.
#include "formats/hdf5/weights_file.h"
#include "formats/keras/archive.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

void check_same(const WeightsByLayer& a, const WeightsByLayer& b) {
  if (a.layers.size() != b.layers.size()) found("another number of layers was read back");
  for (size_t i = 0; i < a.layers.size(); ++i)
    if (a.layers[i].layer != b.layers[i].layer || a.layers[i].tensors != b.layers[i].tensors)
      found("another layer was read back");
  if (a.optimizer.listed != b.optimizer.listed) found("other optimizer variables were read back");
}

// Datasets that cannot be copied (text) are not in the copy, so their lists cannot be read back.
bool is_copied(const KerasArchive& archive) {
  for (const LayerWeights& layer : archive.by_layer->layers)
    for (const std::string& tensor : layer.tensors)
      if (!archive.weights->find(tensor)->kept) return false;
  for (const std::string& tensor : archive.by_layer->optimizer.listed)
    if (!archive.weights->find(tensor)->kept) return false;
  return true;
}

void write_again(const KerasArchive& archive) {
  const std::string path = scratch_folder() + "/copy.h5";
  const auto attributes = legacy_attributes(archive.legacy, *archive.by_layer, archive.by_layer->optimizer.listed);
  const Status written = write_weights_file(path, {}, &*archive.weights, attributes);
  check_error(written);
  if (!written || !is_copied(archive)) return;
  const auto again = open_keras(path);
  if (!again) found("what was written cannot be read: " + to_text(again.error()));
  check_same(*archive.by_layer, *again->by_layer);
}

void run(Input input) {
  scratch_folder();
  const InputFile file(input);
  KerasArchive other;
  check_error(take_weights(other, file.path()));
  const auto archive = open_keras(file.path());
  check_error(archive);
  if (archive && archive->format == ModelFormat::kLegacyH5) write_again(*archive);
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
