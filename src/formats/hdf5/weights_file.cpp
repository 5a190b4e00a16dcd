#include "formats/hdf5/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/checked.h"
#include "formats/file/array_source.h"
#include "formats/hdf5/attributes.h"
#include "formats/hdf5/elements.h"
#include "formats/hdf5/impl.h"
#include "formats/hdf5/links.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

std::optional<uint64_t> as_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Compares paths part by part. Numbers are compared by value and come before names.
bool counted_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const auto part_a = a.substr(0, a.find('/')), part_b = b.substr(0, b.find('/'));
    if (part_a != part_b) {
      const auto number_a = as_number(part_a), number_b = as_number(part_b);
      if (number_a && number_b && *number_a != *number_b) return *number_a < *number_b;
      if (number_a.has_value() != number_b.has_value()) return number_a.has_value();
      return part_a < part_b;
    }
    a.remove_prefix(std::min(a.size(), part_a.size() + 1));
    b.remove_prefix(std::min(b.size(), part_b.size() + 1));
  }
  return a.size() < b.size();
}

struct Found {
  std::string path;
  uint64_t address;
  int depth;
};

// Visits every object once, under the first path that leads to it, so cyclic links do no harm.
class Listing {
 public:
  Listing(const Hdf5Region& region, std::vector<Dataset>& datasets, std::vector<Hdf5GroupPlace>& groups)
      : reader_(region), datasets_(datasets), groups_(groups) {}

  Status run() {
    std::vector<Found> pending = {{"", reader_.region().root, 0}};
    std::unordered_set<uint64_t> visited;
    while (!pending.empty()) {
      Found object = std::move(pending.back());
      pending.pop_back();
      if (!visited.insert(object.address).second) continue;
      if (visited.size() > static_cast<size_t>(limits::kHdf5Objects))
        return reader_.damaged(fmt::format("it has more than {} groups and datasets", limits::kHdf5Objects));
      PLIMSOLL_ASSIGN(const auto header, read_object_header(reader_, object.address));
      if (header.is_dataset()) {
        PLIMSOLL_TRY(add_dataset(std::move(object), header));
      } else if (header.is_group()) {
        PLIMSOLL_TRY(enter_group(object, header, pending));
        if (!object.path.empty()) groups_.push_back({std::move(object.path), object.address});
      } else if (object.depth == 0) {
        return reader_.damaged("its root is not a group");
      }
    }
    std::ranges::sort(datasets_, counted_less, &Dataset::path);
    std::ranges::sort(groups_, {}, &Hdf5GroupPlace::path);
    return {};
  }

 private:
  Status enter_group(const Found& group, const Hdf5Header& header, std::vector<Found>& pending) {
    if (group.depth >= limits::kHdf5Depth)
      return reader_.damaged(fmt::format("its groups are nested deeper than {} levels", limits::kHdf5Depth));
    PLIMSOLL_ASSIGN(auto links, read_links(reader_, header));
    // Reversed, so that the first name is visited first.
    for (auto link = links.rbegin(); link != links.rend(); ++link) {
      std::string path = group.path.empty() ? std::move(link->name) : group.path + "/" + link->name;
      path_bytes_ += static_cast<int64_t>(path.size());
      if (path_bytes_ > limits::kHdf5PathBytes)
        return reader_.damaged(
            fmt::format("the names in it take more than {} in total", format_bytes(limits::kHdf5PathBytes)));
      pending.push_back({std::move(path), link->address, group.depth + 1});
    }
    return {};
  }

  Status add_dataset(Found object, const Hdf5Header& header) {
    PLIMSOLL_ASSIGN(const auto stored, describe_dataset(reader_, header));
    Dataset dataset{std::move(object.path), {}, stored.unreadable, object.address};
    const bool in_reach = dataset.unreadable.empty();
    if (in_reach) PLIMSOLL_TRY(check_place(dataset.path, stored));
    dataset.kept = in_reach && stored.can_be_copied();
    if (dataset.kept) {
      dataset.kept_bytes = stored.is_allocated() ? stored.bytes : 0;
      dataset.type_bytes = static_cast<int64_t>(stored.element.datatype.size() + stored.fill.size());
    }
    if (in_reach && !stored.element.dtype) dataset.unreadable = stored.element.unreadable;
    if (array_bytes(DType::kFloat64, stored.shape))  // the size cannot overflow for any dtype
      dataset.type = {stored.element.dtype.value_or(DType::kFloat32), Shape(stored.shape)};
    else if (dataset.unreadable.empty())
      dataset.unreadable = fmt::format("its shape {} is too large", dims_text(stored.shape));
    datasets_.push_back(std::move(dataset));
    return {};
  }

  Status check_place(const std::string& path, const Hdf5Dataset& stored) {
    const auto& region = reader_.region();
    const int64_t bytes = region.bytes - region.base;
    if (!stored.is_allocated()) return {};
    if (stored.is_chunked()) {
      unpacked_ += std::max(stored.bytes, stored.unpacked_bytes);
      const auto most =
          checked_add(checked_multiply(bytes, limits::kUnpackedRatio).value_or(INT64_MAX / 2), limits::kUnpackedBytes);
      if (!unpacked_.value() || !most || *unpacked_.value() > *most)
        return reader_.damaged("its compressed datasets are too large for the file");
    }
    if (stored.storage != Hdf5Storage::kContiguous) return {};
    const auto address = static_cast<int64_t>(std::min<uint64_t>(stored.address, INT64_MAX));
    if (!lies_within(address, stored.bytes, bytes))
      return reader_.damaged(fmt::format("the elements of {} would lie outside the file's {} bytes", path, bytes));
    contiguous_ += stored.bytes;  // datasets never share bytes, so their total size is at most the file's
    if (!contiguous_.value() || *contiguous_.value() > bytes) return reader_.damaged("its datasets overlap");
    return {};
  }

  Hdf5Reader reader_;
  std::vector<Dataset>& datasets_;
  std::vector<Hdf5GroupPlace>& groups_;
  int64_t path_bytes_ = 0;
  CheckedSum contiguous_, unpacked_;
};

}  // namespace

WeightsFile::WeightsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightsFile::WeightsFile(WeightsFile&&) noexcept = default;
WeightsFile& WeightsFile::operator=(WeightsFile&& other) noexcept = default;
WeightsFile::~WeightsFile() = default;

Result<WeightsFile> WeightsFile::open(const std::string& path, const std::string& label) {
  PLIMSOLL_ASSIGN(auto file, File::open_read(path));
  const int64_t bytes = file.size();
  return open(std::move(file), 0, bytes, label);
}

Result<WeightsFile> WeightsFile::open(File file, int64_t offset, int64_t bytes, const std::string& label) {
  WeightsFile result(std::make_unique<Impl>());
  auto& opened = *result.impl_;
  if (!lies_within(offset, bytes, file.size())) return bad_weights(label, "it would lie outside the archive");
  opened.region.file = std::move(file);
  opened.region.offset = offset;
  opened.region.bytes = bytes;
  opened.region.label = label;
  PLIMSOLL_TRY(read_superblock(opened.region));
  PLIMSOLL_TRY(Listing(opened.region, opened.datasets, opened.groups).run());
  return result;
}

const std::string& WeightsFile::label() const {
  return impl_->region.label;
}
const Hdf5Region& WeightsFile::region() const {
  return impl_->region;
}
const std::vector<Dataset>& WeightsFile::datasets() const {
  return impl_->datasets;
}

const Dataset* WeightsFile::find(std::string_view path) const {
  const auto& all = impl_->datasets;
  const auto at = std::lower_bound(all.begin(), all.end(), path,
                                   [](const Dataset& a, std::string_view b) { return counted_less(a.path, b); });
  return at != all.end() && at->path == path ? &*at : nullptr;
}

std::vector<const Dataset*> WeightsFile::under(std::string_view group) const {
  std::vector<const Dataset*> found;
  for (const auto& dataset : impl_->datasets)
    if (group.empty() ||
        (dataset.path.starts_with(group) && dataset.path.size() > group.size() && dataset.path[group.size()] == '/'))
      found.push_back(&dataset);
  return found;
}

std::optional<TensorType> WeightsFile::type_of(std::string_view path) const {
  const Dataset* dataset = find(path);
  return dataset != nullptr ? std::optional(dataset->type) : std::nullopt;
}

bool WeightsFile::has_group(std::string_view path) const {
  const auto& all = impl_->groups;
  return std::ranges::binary_search(all, path, std::less<>(), &Hdf5GroupPlace::path);
}

GroupTexts::GroupTexts(const WeightsFile& file)
    : file_(file), reader_(std::make_unique<Hdf5Reader>(file.impl_->region)) {}
GroupTexts::~GroupTexts() = default;

Result<std::optional<std::vector<std::string>>> GroupTexts::read(std::string_view group, std::string_view attribute) {
  uint64_t address = reader_->region().root;
  if (!group.empty()) {
    const auto& all = file_.impl_->groups;
    const auto at = std::ranges::lower_bound(all, group, std::less<>(), &Hdf5GroupPlace::path);
    if (at == all.end() || at->path != group) return std::nullopt;
    address = at->address;
  }
  PLIMSOLL_ASSIGN(const auto header, read_object_header(*reader_, address));
  PLIMSOLL_ASSIGN(auto texts, read_text_attribute(*reader_, header, attribute));
  for (size_t i = 0; texts && i < texts->size(); ++i) bytes_ += static_cast<int64_t>((*texts)[i].size());
  if (bytes_ > limits::kHdf5PathBytes)
    return reader_->damaged(
        fmt::format("the texts in its attributes take more than {} in total", format_bytes(limits::kHdf5PathBytes)));
  return texts;
}

Status WeightsFile::read_into(std::string_view path, const TensorType& type, void* destination) const {
  const auto* listed = find(path);
  if (listed == nullptr)
    return fail(ErrorCode::kWeightMissing,
                fmt::format("{} has no weight at {}; expected {}", label(), path, to_text(type)));
  if (!listed->unreadable.empty())
    return bad_weights(label(), fmt::format("{} cannot be read: {}", path, listed->unreadable));
  const auto convertible = [](DType dtype) { return dtype != DType::kBFloat16 && dtype != DType::kBool; };
  const bool same = listed->type.dtype == type.dtype;
  if (listed->type.shape != type.shape || (!same && !(convertible(type.dtype) && convertible(listed->type.dtype))))
    return fail(ErrorCode::kWeightShape, fmt::format("{}: the weight at {} is {}, expected {}", label(), path,
                                                     to_text(listed->type), to_text(type)));
  Hdf5Reader reader(impl_->region);
  PLIMSOLL_ASSIGN(const auto header, read_object_header(reader, listed->address));
  if (!header.is_dataset()) return bad_weights(label(), "it changed while it was open");
  PLIMSOLL_ASSIGN(const auto stored, describe_dataset(reader, header));
  if (!stored.unreadable.empty() || stored.element.dtype != listed->type.dtype ||
      stored.shape != listed->type.shape.dims)
    return bad_weights(label(), "it changed while it was open");
  auto* const out = static_cast<std::byte*>(destination);
  const bool straight = same && !stored.element.big_endian && type.dtype != DType::kBool;
  if (straight && stored.storage == Hdf5Storage::kContiguous && stored.address != kHdf5Nowhere)
    return reader.elements(stored.address, {out, static_cast<size_t>(type.bytes())});
  const int64_t from = stored.element.bytes, to = size_of(type.dtype);
  return read_elements(reader, stored, [&](int64_t offset, std::span<const std::byte> piece) -> Status {
    convert_elements(stored.element, piece, type.dtype, out + offset / from * to);
    return {};
  });
}

}  // namespace plimsoll::engine
