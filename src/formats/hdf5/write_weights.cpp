#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/checked.h"
#include "formats/hdf5/elements.h"
#include "formats/hdf5/impl.h"
#include "formats/hdf5/structures.h"

namespace plimsoll::engine {
namespace {

constexpr std::array<std::string_view, 2> kOptimizers = {"optimizer/", "optimizer_weights/"};
constexpr int64_t kDataAlignment = 64;

struct Node {
  std::map<std::string, Node, std::less<>> members;  // the members of a group, in the order that HDF5 requires
  const WeightEntry* entry = nullptr;                // a dataset from memory
  const Dataset* copied = nullptr;                   // a dataset copied from the source
  std::vector<const TextAttribute*> attributes;      // of a group

  bool is_dataset() const { return entry != nullptr || copied != nullptr; }
};

// Returns the node at `path` and creates it and its groups if necessary; null if a dataset is in the way.
Node* make_node(Node& root, std::string_view path) {
  Node* node = &root;
  while (!path.empty()) {
    if (node->is_dataset()) return nullptr;
    const auto name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    node = &node->members.try_emplace(std::string(name)).first->second;
  }
  return node;
}

bool is_new(const Node* node) {
  return node != nullptr && !node->is_dataset() && node->members.empty();
}

bool is_marked(const Node& node) {
  return (node.entry != nullptr ? node.entry->type.dtype : node.copied->type.dtype) == DType::kBFloat16;
}

}  // namespace

// The contents of the file to write. The paths of a source are limited (formats/limits.h), which bounds the recursions.
class WeightsTree {
 public:
  WeightsTree(std::span<const WeightEntry> entries, const WeightsFile* source,
              std::span<const TextAttribute> attributes)
      : source_(source) {
    std::array<bool, kOptimizers.size()> replaced{};
    for (const auto& entry : entries) {
      if (Node* node = make_node(root_, entry.path); is_new(node)) node->entry = &entry;
      for (size_t i = 0; i < replaced.size(); ++i) replaced[i] |= entry.path.starts_with(kOptimizers[i]);
    }
    for (const auto& attribute : attributes)
      if (Node* node = make_node(root_, attribute.group); node != nullptr && !node->is_dataset())
        node->attributes.push_back(&attribute);
    // Keras 3.0.0 opens the model's own "vars" without checking that it exists.
    if (attributes.empty()) make_node(root_, "vars");
    if (source == nullptr) return;
    for (const auto& group : source->impl_->groups) make_node(root_, group.path);
    for (const auto& dataset : source->datasets()) {
      bool keep = dataset.kept;
      for (size_t i = 0; i < replaced.size(); ++i) keep &= !(replaced[i] && dataset.path.starts_with(kOptimizers[i]));
      if (!keep) continue;
      if (Node* node = make_node(root_, dataset.path); is_new(node)) node->copied = &dataset;
    }
  }

  CheckedSum bytes() const {
    CheckedSum sum;
    sum += kHdf5SuperblockBytes;
    size_t marks = 0;
    add_bytes(root_, sum, marks);
    sum += static_cast<int64_t>(marks / kHdf5MarksPerHeap + 1) * kHdf5MarkHeapBytes;
    return sum;
  }

  Status write(AtomicFile& file) {
    begin_ = file.position();
    PLIMSOLL_TRY(file.pad_to(begin_ + kHdf5SuperblockBytes));
    marks_left_ = count_marks(root_);
    PLIMSOLL_ASSIGN(const Hdf5Group root, write_group(file, root_));
    const auto end = static_cast<uint64_t>(file.position() - begin_);
    return file.write_at(begin_, bytes_of_text(hdf5_superblock(root, end)));
  }

 private:
  static void add_bytes(const Node& node, CheckedSum& sum, size_t& marks) {  // NOLINT(misc-no-recursion)
    constexpr int64_t kDatasetHeader = 512;
    if (node.is_dataset()) {
      marks += is_marked(node) ? 1 : 0;
      const auto rank = node.entry != nullptr ? node.entry->type.shape.rank() : node.copied->type.shape.rank();
      sum += kDatasetHeader + kDataAlignment + static_cast<int64_t>(8 * rank);
      sum += node.entry != nullptr ? node.entry->type.bytes() : node.copied->kept_bytes;
      if (node.copied != nullptr) sum += node.copied->type_bytes;
      return;
    }
    size_t names = 0;
    for (const auto& [name, member] : node.members) {
      names += name.size() + 8;
      add_bytes(member, sum, marks);
    }
    sum += hdf5_group_bytes(node.members.size(), names);
    for (const TextAttribute* attribute : node.attributes) {
      size_t longest = 32;
      for (const std::string& text : attribute->texts) longest = std::max(longest, text.size() + 32);
      sum += static_cast<int64_t>(kHdf5MarkHeapBytes) + 256;
      // A list takes the length of its longest text for each of them, and heads of its parts.
      sum += static_cast<int64_t>(longest * attribute->texts.size() + longest);
    }
  }

  static size_t count_marks(const Node& node) {  // NOLINT(misc-no-recursion)
    if (node.is_dataset()) return is_marked(node) ? 1 : 0;
    size_t count = 0;
    for (const auto& [name, member] : node.members) count += count_marks(member);
    return count;
  }

  // Writes the members first, because the group stores their addresses.
  Result<Hdf5Group> write_group(AtomicFile& file, const Node& group) {  // NOLINT(misc-no-recursion)
    std::vector<Hdf5Member> members;
    for (const auto& [name, member] : group.members) {
      if (member.is_dataset()) {
        PLIMSOLL_ASSIGN(const uint64_t address, write_dataset(file, member));
        members.push_back({name, address});
      } else {
        PLIMSOLL_ASSIGN(const Hdf5Group written, write_group(file, member));
        members.push_back({name, written.header});
      }
    }
    PLIMSOLL_ASSIGN(const auto attributes, write_texts(file, group.attributes));
    PLIMSOLL_TRY(align(file, 8));
    return hdf5_write_group(file, begin_, members, attributes);
  }

  // Writes the heap of a group's attributes, and returns their messages.
  Result<std::vector<std::string>> write_texts(AtomicFile& file, const std::vector<const TextAttribute*>& attributes) {
    std::vector<std::string> messages;
    std::vector<std::string_view> texts;
    for (const TextAttribute* attribute : attributes)
      if (!attribute->list) texts.push_back(attribute->texts.at(0));
    PLIMSOLL_TRY(align(file, 8));
    const uint64_t heap = here(file);
    if (!texts.empty()) PLIMSOLL_TRY(file.write(bytes_of_text(hdf5_text_heap(texts))));
    uint32_t index = 0;
    for (const TextAttribute* attribute : attributes) {
      if (attribute->list) {
        add_list(*attribute, messages);
      } else {
        messages.push_back(hdf5_text_attribute(attribute->name, texts[index].size(), heap, index + 1));
        ++index;
      }
    }
    return messages;
  }

  static void add_list(const TextAttribute& attribute, std::vector<std::string>& messages) {
    const std::span<const std::string> texts = attribute.texts;
    messages.push_back(hdf5_list_attribute(attribute.name, texts));
    if (!messages.back().empty()) return;
    messages.pop_back();
    // A single text is always short enough: the names of members are limited.
    for (size_t part = 0, begin = 0; begin < texts.size(); ++part) {
      size_t count = texts.size() - begin;
      std::string message;
      while (message.empty() && count > 0) {
        message = hdf5_list_attribute(fmt::format("{}{}", attribute.name, part), texts.subspan(begin, count));
        if (message.empty()) count /= 2;
      }
      if (count == 0) return;
      messages.push_back(std::move(message));
      begin += count;
    }
  }

  Result<uint64_t> write_dataset(AtomicFile& file, const Node& node) {
    Hdf5DatasetText text;
    if (node.entry != nullptr)
      PLIMSOLL_TRY(write_entry(file, *node.entry, text));
    else
      PLIMSOLL_TRY(copy_dataset(file, *node.copied, text));
    Hdf5Mark mark;
    if (is_marked(node)) {
      PLIMSOLL_ASSIGN(mark, next_mark(file));
      text.mark = &mark;
    }
    PLIMSOLL_TRY(align(file, 8));
    const uint64_t address = here(file);
    PLIMSOLL_TRY(file.write(bytes_of_text(hdf5_dataset_header(text))));
    return address;
  }

  Status write_entry(AtomicFile& file, const WeightEntry& entry, Hdf5DatasetText& text) {
    text.datatype = hdf5_datatype(entry.type.dtype);
    text.shape = entry.type.shape.dims;
    text.bytes = entry.type.bytes();
    PLIMSOLL_TRY(begin_elements(file, text));
    return file.write({static_cast<const std::byte*>(entry.data), static_cast<size_t>(text.bytes)});
  }

  Status copy_dataset(AtomicFile& file, const Dataset& dataset, Hdf5DatasetText& text) {
    if (!reader_) reader_.emplace(source_->impl_->region);
    Hdf5Reader& reader = *reader_;
    PLIMSOLL_ASSIGN(const auto header, read_object_header(reader, dataset.address));
    if (!header.is_dataset()) return bad_weights(source_->label(), "it changed while it was open");
    PLIMSOLL_ASSIGN(const auto stored, describe_dataset(reader, header));
    if (!stored.can_be_copied() || (stored.is_allocated() && stored.bytes != dataset.kept_bytes))
      return bad_weights(source_->label(), "it changed while it was open");
    const auto as_text = [](std::span<const std::byte> bytes) {
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    text.datatype = as_text(stored.element.datatype);
    text.fill = as_text(stored.fill);
    text.shape = stored.shape;
    text.bytes = stored.bytes;
    text.address = kHdf5Nowhere;
    if (!stored.is_allocated()) return {};
    PLIMSOLL_TRY(begin_elements(file, text));
    const int64_t begin = file.position();
    PLIMSOLL_TRY(read_elements(reader, stored, [&](int64_t offset, std::span<const std::byte> piece) {
      return file.write_at(begin + offset, piece);
    }));
    return file.skip_to(begin + text.bytes);
  }

  Status begin_elements(AtomicFile& file, Hdf5DatasetText& text) const {
    text.address = kHdf5Nowhere;
    if (text.bytes == 0) return {};
    PLIMSOLL_TRY(align(file, kDataAlignment));
    text.address = here(file);
    return {};
  }

  // Gives each dataset its own text, so that changing or removing one attribute later does not affect another dataset.
  Result<Hdf5Mark> next_mark(AtomicFile& file) {
    if (mark_.heap == 0 || mark_.index == kHdf5MarksPerHeap) {
      PLIMSOLL_TRY(align(file, 8));
      mark_ = {here(file), 0};
      PLIMSOLL_TRY(file.write(bytes_of_text(hdf5_mark_heap(std::min(marks_left_, kHdf5MarksPerHeap)))));
    }
    --marks_left_;
    ++mark_.index;
    return mark_;
  }

  Status align(AtomicFile& file, int64_t alignment) const {
    return file.pad_to(begin_ + align_up(file.position() - begin_, alignment));
  }
  uint64_t here(const AtomicFile& file) const { return static_cast<uint64_t>(file.position() - begin_); }

  Node root_;
  const WeightsFile* source_;
  std::optional<Hdf5Reader> reader_;  // shared by all copies, because its limits apply to all of them together
  int64_t begin_ = 0;
  Hdf5Mark mark_;
  size_t marks_left_ = 0;
};

int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source,
                               std::span<const TextAttribute> attributes) {
  return WeightsTree(entries, source, attributes).bytes().value().value_or(INT64_MAX);
}

Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source,
                     std::span<const TextAttribute> attributes) {
  return WeightsTree(entries, source, attributes).write(file);
}

}  // namespace plimsoll::engine
