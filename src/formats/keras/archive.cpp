#include "formats/keras/archive.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/checked.h"
#include "formats/json/parse.h"
#include "formats/keras/layer_paths.h"
#include "formats/keras/upgrade.h"
#include "formats/keras/vocabularies.h"
#include "formats/limits.h"
#include "formats/saved_model/saved_model.h"
#include "formats/zip/zip_writer.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kMetadata = "metadata.json";
constexpr std::string_view kWeights = "model.weights.h5";

Result<const ZipEntry*> require(const ZipReader& zip, std::string_view name) {
  if (const auto* entry = zip.find(name)) return entry;
  Error error{
      ErrorCode::kNotAKerasFile, fmt::format("{}: the archive has no entry {}", zip.file().path(), name), {}, {}};
  error.fact(fmt::format("expected: {}, {} and {}, as Keras 3 writes them", kConfig, kMetadata, kWeights));
  std::string names;
  for (size_t i = 0; i < zip.entries().size() && i < 8; ++i) names += (i == 0 ? "" : ", ") + zip.entries()[i].name;
  error.fact(fmt::format("found: {}", names.empty() ? "nothing" : names));
  return fail(std::move(error.remedy("model.save('model.keras') in Keras 3")));
}

// Limits the size of a deflated entry, because it is unpacked to a disk that other programs need too.
Status check_unpacked_size(const ZipReader& zip, const ZipEntry& entry) {
  const auto most = checked_multiply(entry.compressed_bytes, limits::kUnpackedRatio);
  if (entry.bytes > limits::kUnpackedBytes && most && entry.bytes > *most) {
    Error error{ErrorCode::kNotAKerasFile,
                fmt::format("{}: entry {} would decompress from {} to {}", zip.file().path(), entry.name,
                            format_bytes(entry.compressed_bytes), format_bytes(entry.bytes)),
                {},
                {}};
    error.fact(fmt::format("weights compressed by a factor of more than {} are rejected", limits::kUnpackedRatio));
    return fail(std::move(error.remedy("save the model again: Keras stores weights uncompressed")));
  }
  return {};
}

// Reads a stored entry (as Keras writes it) in place, and a deflated entry from a temporary copy. In both cases the
// CRC32 is checked first, because damage in the weights themselves would not be noticed elsewhere.
Result<WeightsFile> open_weights(const ZipReader& zip, const ZipEntry& entry, const std::string& label) {
  if (!entry.deflated) {
    PLIMSOLL_TRY(zip.extract(entry, [](std::span<const std::byte>) { return Status{}; }));
    PLIMSOLL_ASSIGN(auto file, zip.file().share());
    PLIMSOLL_ASSIGN(const int64_t offset, zip.data_offset(entry));
    return WeightsFile::open(std::move(file), offset, entry.bytes, label);
  }
  PLIMSOLL_ASSIGN(auto copy, TemporaryFile::create());
  PLIMSOLL_TRY(check_unpacked_size(zip, entry));
  PLIMSOLL_TRY(copy.check_space(entry.bytes));
  PLIMSOLL_TRY(zip.extract(entry, [&](std::span<const std::byte> piece) { return copy.write(piece); }));
  PLIMSOLL_ASSIGN(auto file, std::move(copy).open_read());
  return WeightsFile::open(std::move(file), 0, entry.bytes, label);
}

// Returns whether Keras 2 wrote a .keras file.
bool is_of_keras2(const std::string& metadata) {
  const auto parsed = parse_json(metadata, "metadata.json");
  if (!parsed || !parsed->is_object()) return false;
  const auto version = parsed->find("keras_version");
  return version != parsed->end() && version->is_string() && version->get<std::string>().starts_with("2.");
}

// Brings a configuration of Keras 2 into the form of Keras 3. That of Keras 3 stays as it was read.
void upgrade_keras2(KerasArchive& archive) {
  if (!is_legacy_config(archive.config) && !is_of_keras2(archive.metadata_text)) return;
  archive.upgraded = true;
  archive.config = upgrade_model(std::move(archive.config));
  if (!archive.config.is_object()) return;
  if (const auto compiled = archive.config.find("compile_config");
      compiled != archive.config.end() && compiled->is_object()) {
    nlohmann::json training = *compiled;
    if (const auto optimizer = training.find("optimizer"); optimizer != training.end())
      training["optimizer_config"] = *optimizer;
    *compiled = upgrade_training(training);
  }
  archive.config_text = archive.config.dump();
}

Result<KerasArchive> open_archive(const std::string& path) {
  KerasArchive archive;
  archive.path = path;
  PLIMSOLL_ASSIGN(archive.zip, ZipReader::open(path, ErrorCode::kNotAKerasFile));
  const auto& zip = *archive.zip;
  PLIMSOLL_ASSIGN(const auto* config, require(zip, kConfig));
  PLIMSOLL_ASSIGN(const auto* metadata, require(zip, kMetadata));
  PLIMSOLL_ASSIGN(const auto* weights, require(zip, kWeights));
  PLIMSOLL_ASSIGN(archive.metadata_text, zip.text(*metadata, limits::kConfigBytes));
  PLIMSOLL_ASSIGN(archive.config_text, zip.text(*config, limits::kConfigBytes));
  PLIMSOLL_ASSIGN(archive.config, parse_json(archive.config_text, fmt::format("{}: {}", path, kConfig)));
  upgrade_keras2(archive);
  PLIMSOLL_ASSIGN(archive.weights, open_weights(zip, *weights, fmt::format("{}: {}", path, kWeights)));
  PLIMSOLL_ASSIGN(archive.adapted, add_adapted(archive, archive.config));
  return archive;
}

Result<KerasArchive> open_architecture(const File& file) {
  if (file.size() > limits::kConfigBytes)
    return fail(ErrorCode::kNotAKerasFile,
                fmt::format("{}: {} is too large for a JSON architecture", file.path(), format_bytes(file.size())));
  KerasArchive archive;
  archive.path = file.path();
  archive.config_text.resize(static_cast<size_t>(file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(archive.config_text))));
  archive.format = ModelFormat::kJson;
  PLIMSOLL_ASSIGN(archive.config, parse_json(archive.config_text, file.path()));
  upgrade_keras2(archive);
  return archive;
}

// Returns the text of a scalar attribute of the root; "" if there is none.
Result<std::string> root_text(GroupTexts& texts, const char* attribute) {
  PLIMSOLL_ASSIGN(const auto found, texts.read("", attribute));
  return found && found->size() == 1 ? found->front() : "";
}

// Opens a whole model in HDF5. `weights_only` says whether a file without a model is wanted.
Result<KerasArchive> open_h5(const std::string& path, bool weights_only) {
  KerasArchive archive;
  archive.path = path;
  archive.format = ModelFormat::kLegacyH5;
  PLIMSOLL_ASSIGN(archive.weights, WeightsFile::open(path, path));
  PLIMSOLL_ASSIGN(archive.by_layer, read_by_layer(*archive.weights));
  if (weights_only) return archive;
  GroupTexts texts(*archive.weights);
  PLIMSOLL_ASSIGN(archive.legacy.model_config, root_text(texts, "model_config"));
  if (archive.legacy.model_config.empty() || !archive.by_layer) {
    Error error{ErrorCode::kNotAKerasFile, fmt::format("{} holds weights, but no model", path), {}, {}};
    error.fact("it is an HDF5 file without the attribute model_config and the group model_weights of a whole model");
    error.remedy(fmt::format("model.json --weights {}   with the architecture of model.to_json()", path));
    return fail(std::move(error.remedy("model.save('model.keras') in Keras")));
  }
  PLIMSOLL_ASSIGN(archive.legacy.training_config, root_text(texts, "training_config"));
  PLIMSOLL_ASSIGN(archive.legacy.keras_version, root_text(texts, "keras_version"));
  PLIMSOLL_ASSIGN(archive.legacy.backend, root_text(texts, "backend"));
  PLIMSOLL_ASSIGN(auto model, parse_json(archive.legacy.model_config, path + ": model_config"));
  archive.config = upgrade_model(std::move(model));
  if (!archive.legacy.training_config.empty() && archive.config.is_object()) {
    PLIMSOLL_ASSIGN(const auto training, parse_json(archive.legacy.training_config, path + ": training_config"));
    archive.config["compile_config"] = upgrade_training(training);
  }
  archive.config_text = archive.config.dump();
  return archive;
}

Result<KerasArchive> open_folder(const std::string& path) {
  PLIMSOLL_ASSIGN(SavedModel saved, open_saved_model(path));
  KerasArchive archive;
  archive.path = path;
  archive.format = ModelFormat::kSavedModel;
  archive.config = upgrade_model(std::move(saved.model));
  if (saved.training.is_object()) archive.config["compile_config"] = upgrade_training(saved.training);
  archive.config_text = archive.config.dump();
  archive.bundle = std::move(saved.bundle);
  archive.by_layer = std::move(saved.by_layer);
  return archive;
}

Error unknown_content(const std::string& path) {
  Error error{ErrorCode::kNotAKerasFile, fmt::format("{} is not a model file of Keras", path), {}, {}};
  error.fact("it starts neither like a zip archive (PK), nor like HDF5, nor like JSON ({)");
  return error.remedy("model.save('model.keras') in Keras 3, or model.to_json() for an architecture without weights");
}

int64_t text_bytes(const KerasContents& contents) {
  return static_cast<int64_t>(contents.config_text.size() + contents.metadata_text.size());
}

bool is_ours(const ZipEntry& entry) {
  return entry.name == kConfig || entry.name == kMetadata || entry.name == kWeights;
}

// Copies the layers' assets (vocabularies) and all other entries of the source.
Status copy_other_entries(const ZipReader& source, ZipWriter& zip) {
  for (const auto& entry : source.entries()) {
    if (is_ours(entry)) continue;
    PLIMSOLL_TRY(zip.add(entry.name, entry.bytes, [&](const Sink& sink) { return source.extract(entry, sink); }));
  }
  return {};
}

}  // namespace

namespace {

Result<KerasArchive> open_any(const std::string& path, bool weights_only) {
  if (is_folder(path)) return open_folder(path);
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  std::array<char, 64> start{};
  const auto lead = std::min<size_t>(start.size(), static_cast<size_t>(file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start).first(lead))));
  const std::string_view text(start.data(), lead);
  if (text.starts_with("PK")) return open_archive(path);
  if (text.starts_with("\x89HDF\r\n")) return open_h5(path, weights_only);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return open_architecture(file);
  return fail(unknown_content(path));
}

}  // namespace

Result<KerasArchive> open_keras(const std::string& path) {
  return open_any(path, false);
}

Status take_weights(KerasArchive& archive, const std::string& path) {
  PLIMSOLL_ASSIGN(KerasArchive other, open_any(path, true));
  if (other.tensors() == nullptr)
    return fail(Error{ErrorCode::kNotAKerasFile,
                      fmt::format("{} has no weights: it is an architecture in JSON", path),
                      {},
                      {"model.save_weights('model.weights.h5') in Keras"}});
  archive.weights = std::move(other.weights);
  archive.bundle = std::move(other.bundle);
  archive.by_layer = std::move(other.by_layer);
  archive.weights_from = path;
  return {};
}

std::string optimizer_path(int index, std::string_view group) {
  return fmt::format("{}/{}", group, index);
}

std::vector<OptimizerVariable> optimizer_variables(const WeightsFile& weights, std::string_view group) {
  std::vector<OptimizerVariable> variables;
  for (const auto* dataset : weights.under(group)) {
    const auto number = std::string_view(dataset->path).substr(group.size() + 1);
    int index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc{} && end == number.data() + number.size())
      variables.push_back({index, dataset->path, dataset->type});
  }
  return variables;
}

Status write_keras(const std::string& path, const KerasContents& contents) {
  const auto* source = contents.source;
  const auto* old_weights = source != nullptr && source->weights && !source->by_layer ? &*source->weights : nullptr;
  const int64_t expected = expected_weights_bytes(contents.weights, old_weights);
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.reserve(expected + text_bytes(contents)));
  ZipWriter zip(file);
  PLIMSOLL_TRY(zip.add_text(std::string(kMetadata), contents.metadata_text));
  PLIMSOLL_TRY(zip.add_text(std::string(kConfig), contents.config_text));
  PLIMSOLL_TRY(zip.add_in_place(std::string(kWeights), expected,
                                [&] { return write_weights(file, contents.weights, old_weights); }));
  if (source != nullptr && source->zip) PLIMSOLL_TRY(copy_other_entries(*source->zip, zip));
  PLIMSOLL_TRY(zip.finish());
  return file.commit();
}

Status write_weights_file(const std::string& path, std::span<const WeightEntry> weights, const WeightsFile* source,
                          std::span<const TextAttribute> attributes) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.reserve(expected_weights_bytes(weights, source, attributes)));
  PLIMSOLL_TRY(write_weights(file, weights, source, attributes));
  return file.commit();
}

std::vector<TextAttribute> legacy_attributes(const LegacyTexts& texts, const WeightsByLayer& by_layer,
                                             std::span<const std::string> optimizer) {
  std::vector<TextAttribute> attributes;
  const auto text = [&](const std::string& group, const char* name, const std::string& value) {
    if (!value.empty()) attributes.push_back({group, name, {value}, false});
  };
  const auto list = [&](const std::string& group, const char* name, std::vector<std::string> values) {
    attributes.push_back({group, name, std::move(values), true});
  };
  const auto within = [](const std::string& group, std::span<const std::string> paths) {
    std::vector<std::string> names;
    for (const std::string& path : paths) names.push_back(path.substr(group.empty() ? 0 : group.size() + 1));
    return names;
  };
  text(by_layer.root, "keras_version", texts.keras_version);
  text(by_layer.root, "backend", texts.backend);
  if (!by_layer.root.empty()) {
    text("", "keras_version", texts.keras_version);
    text("", "backend", texts.backend);
    text("", "model_config", texts.model_config);
    text("", "training_config", texts.training_config);
  }
  std::vector<std::string> layers;
  for (const LayerWeights& layer : by_layer.layers) {
    layers.push_back(layer.layer);
    const std::string group = by_layer.root.empty() ? layer.layer : by_layer.root + "/" + layer.layer;
    list(group, "weight_names", within(group, layer.tensors));
  }
  list(by_layer.root, "layer_names", std::move(layers));
  if (!optimizer.empty()) list("optimizer_weights", "weight_names", within("optimizer_weights", optimizer));
  return attributes;
}

bool has_loss_scale_state(const KerasArchive& archive) {
  return archive.weights && !archive.by_layer && !optimizer_variables(*archive.weights, kInnerOptimizerVars).empty();
}

}  // namespace plimsoll::engine
