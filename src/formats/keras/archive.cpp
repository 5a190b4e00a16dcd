#include "formats/keras/archive.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/checked.h"
#include "formats/json/parse.h"
#include "formats/limits.h"
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
  PLIMSOLL_ASSIGN(archive.weights, open_weights(zip, *weights, fmt::format("{}: {}", path, kWeights)));
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
  PLIMSOLL_ASSIGN(archive.config, parse_json(archive.config_text, file.path()));
  return archive;
}

Error unknown_content(const std::string& path, bool is_hdf5) {
  Error error{ErrorCode::kNotAKerasFile, fmt::format("{} is not a .keras file", path), {}, {}};
  if (is_hdf5)
    error.fact("it is an HDF5 file: either weights only, or a model in the format from before Keras 3");
  else
    error.fact("it starts neither like a zip archive (PK) nor like JSON ({)");
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

Result<KerasArchive> open_keras(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  std::array<char, 64> start{};
  const auto lead = std::min<size_t>(start.size(), static_cast<size_t>(file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start).first(lead))));
  const std::string_view text(start.data(), lead);
  if (text.starts_with("PK")) return open_archive(path);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return open_architecture(file);
  return fail(unknown_content(path, text.starts_with("\x89HDF")));
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
  const auto* old_weights = source != nullptr && source->weights ? &*source->weights : nullptr;
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

bool has_loss_scale_state(const KerasArchive& archive) {
  return archive.weights && !optimizer_variables(*archive.weights, kInnerOptimizerVars).empty();
}

}  // namespace plimsoll::engine
