#include "formats/hdf5/structures.h"

#include <algorithm>

#include "formats/hdf5/object_header.h"
#include "formats/hdf5/reader.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kLeafK = 4, kInternalK = 16;  // HDF5's defaults: half of a node's capacity
constexpr size_t kEntriesPerLeaf = 2 * kLeafK, kChildrenPerNode = 2 * kInternalK;
constexpr size_t kLeafBytes = 8 + kEntriesPerLeaf * 40;
constexpr size_t kNodeBytes = 24 + kChildrenPerNode * 8 + (kChildrenPerNode + 1) * 8;
constexpr size_t kGroupHeaderBytes = 16 + 8 + 16, kHeapHeadBytes = 32;

class Text {
 public:
  Text& put(uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  Text& u8(uint64_t value) { return put(value, 1); }
  Text& u16(uint64_t value) { return put(value, 2); }
  Text& u32(uint64_t value) { return put(value, 4); }
  Text& u64(uint64_t value) { return put(value, 8); }
  Text& text(std::string_view text) {
    text_ += text;
    return *this;
  }
  Text& pad(size_t multiple) {
    text_.resize((text_.size() + multiple - 1) / multiple * multiple);
    return *this;
  }
  Text& pad_to(size_t size) {
    text_.resize(std::max(size, text_.size()));
    return *this;
  }
  size_t size() const { return text_.size(); }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

// Collects the messages of an object header of version 1.
class Header {
 public:
  void message(Hdf5MessageType type, const std::string& body, bool constant = false) {
    const size_t padded = (body.size() + 7) / 8 * 8;
    messages_.u16(static_cast<uint16_t>(type)).u16(padded).u8(constant ? 1 : 0).put(0, 3).text(body).pad(8);
    ++count_;
  }
  std::string str() const {
    Text header;
    constexpr int kVersion = 1, kLinks = 1;
    header.u8(kVersion).u8(0).u16(count_).u32(kLinks).u32(messages_.size()).u32(0).text(messages_.str());
    return header.str();
  }

 private:
  Text messages_;
  size_t count_ = 0;
};

std::string fixed_point(size_t bytes, bool is_signed) {
  return Text().u8(0x10).put(is_signed ? 8 : 0, 3).u32(bytes).u16(0).u16(8 * bytes).str();
}

std::string floating(size_t bytes, int exponent_bits, int mantissa_bits, uint32_t bias) {
  constexpr int kImpliedOne = 0x20;
  Text type;
  type.u8(0x11).u8(kImpliedOne).u8(8 * bytes - 1).u8(0).u32(bytes).u16(0).u16(8 * bytes);
  return type.u8(static_cast<uint64_t>(mantissa_bits))
      .u8(static_cast<uint64_t>(exponent_bits))
      .u8(0)
      .u8(static_cast<uint64_t>(mantissa_bits))
      .u32(bias)
      .str();
}

std::string boolean() {
  Text type;
  constexpr int kMembers = 2;
  type.u8(0x18).put(kMembers, 3).u32(1).text(fixed_point(1, true));
  return type.text(std::string_view("FALSE\0\0\0TRUE\0\0\0\0\0\1", 18)).str();
}

std::string dataspace(const std::vector<int64_t>& shape) {
  Text space;
  space.u8(1).u8(shape.size()).put(0, 6);
  for (const int64_t dim : shape) space.u64(static_cast<uint64_t>(dim));
  return space.str();
}

// Everything of an attribute message before its value.
Text attribute_head(std::string_view name, const std::string& datatype, const std::string& space) {
  Text attribute;
  attribute.u8(1).u8(0).u16(name.size() + 1).u16(datatype.size()).u16(space.size());
  attribute.text(name).u8(0).pad(8).text(datatype).pad(8).text(space).pad(8);
  return attribute;
}

// The attribute "dtype" is a text of variable length. h5py returns texts of fixed length as bytes, which Keras does not
// accept.
std::string mark_attribute(const Hdf5Mark& mark) {
  return hdf5_text_attribute("dtype", kHdf5Mark.size(), mark.heap, mark.index);
}

class GroupWriter {
 public:
  GroupWriter(AtomicFile& file, int64_t begin) : file_(file), begin_(begin) {}

  Result<Hdf5Group> write(const std::vector<Hdf5Member>& members, const std::vector<std::string>& attributes) {
    PLIMSOLL_ASSIGN(const uint64_t heap, write_names(members));
    PLIMSOLL_ASSIGN(auto children, write_leaves(members));
    uint64_t tree = 0;
    int level = 0;
    do {
      PLIMSOLL_ASSIGN(children, write_level(children, level++));
      tree = children.front().address;
    } while (children.size() > 1);
    Header header;
    header.message(Hdf5MessageType::kSymbolTable, Text().u64(tree).u64(heap).str());
    for (const std::string& attribute : attributes) header.message(Hdf5MessageType::kAttribute, attribute);
    PLIMSOLL_ASSIGN(const uint64_t address, append(header.str()));
    return Hdf5Group{address, tree, heap};
  }

 private:
  struct Child {
    uint64_t address;
    uint64_t last;  // the last name below the child, as an offset in the heap
  };

  uint64_t here() const { return static_cast<uint64_t>(file_.position() - begin_); }

  Result<uint64_t> append(const std::string& text) {
    const uint64_t at = here();
    PLIMSOLL_TRY(file_.write(bytes_of_text(text)));
    return at;
  }

  Result<uint64_t> write_names(const std::vector<Hdf5Member>& members) {
    Text names;
    names.u64(0);  // the empty name, which sorts before all others
    for (const auto& member : members) {
      offsets_.push_back(names.size());
      names.text(member.name).u8(0).pad(8);
    }
    constexpr uint64_t kNoFreeSpace = 1;
    Text heap;
    heap.text("HEAP").u32(0).u64(names.size()).u64(kNoFreeSpace).u64(here() + kHeapHeadBytes).text(names.str());
    return append(heap.str());
  }

  Result<std::vector<Child>> write_leaves(const std::vector<Hdf5Member>& members) {
    std::vector<Child> leaves;
    for (size_t i = 0; i < members.size(); i += kEntriesPerLeaf) {
      const size_t count = std::min(kEntriesPerLeaf, members.size() - i);
      Text leaf;
      leaf.text("SNOD").u8(1).u8(0).u16(count);
      for (size_t k = i; k < i + count; ++k) leaf.u64(offsets_[k]).u64(members[k].address).put(0, 8).u64(0).u64(0);
      PLIMSOLL_ASSIGN(const uint64_t at, append(leaf.pad_to(kLeafBytes).str()));
      leaves.push_back({at, offsets_[i + count - 1]});
    }
    return leaves;
  }

  // Writes at least one node. The key before a child is the last name of the previous child.
  Result<std::vector<Child>> write_level(const std::vector<Child>& children, int level) {
    std::vector<Child> nodes;
    const size_t count = std::max<size_t>(1, (children.size() + kChildrenPerNode - 1) / kChildrenPerNode);
    for (size_t n = 0; n < count; ++n) {
      const size_t first = n * kChildrenPerNode, used = std::min(kChildrenPerNode, children.size() - first);
      uint64_t last = first == 0 ? 0 : children[first - 1].last;
      Text node;
      node.text("TREE").u8(0).u8(static_cast<uint64_t>(level)).u16(used);
      node.u64(n == 0 ? kHdf5Nowhere : here() - kNodeBytes).u64(n + 1 == count ? kHdf5Nowhere : here() + kNodeBytes);
      node.u64(last);
      for (size_t k = first; k < first + used; ++k) {
        last = children[k].last;
        node.u64(children[k].address).u64(last);
      }
      PLIMSOLL_ASSIGN(const uint64_t at, append(node.pad_to(kNodeBytes).str()));
      nodes.push_back({at, last});
    }
    return nodes;
  }

  AtomicFile& file_;
  int64_t begin_;
  std::vector<uint64_t> offsets_;  // offsets of the names
};

}  // namespace

std::string hdf5_datatype(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return floating(4, 8, 23, 127);
    case DType::kFloat64:
      return floating(8, 11, 52, 1023);
    case DType::kFloat16:
      return floating(2, 5, 10, 15);
    case DType::kBFloat16:
      return Text().u8(0x15).put(0, 3).u32(2).str();
    case DType::kBool:
      return boolean();
    default: {
      const bool is_signed =
          dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
      return fixed_point(static_cast<size_t>(size_of(dtype)), is_signed);
    }
  }
}

std::string hdf5_dataset_header(const Hdf5DatasetText& dataset) {
  Header header;
  header.message(Hdf5MessageType::kDataspace, dataspace(dataset.shape));
  header.message(Hdf5MessageType::kDatatype, dataset.datatype, true);
  constexpr int kVersion = 2, kLate = 2, kIfSet = 2, kDefined = 1;
  Text fill;
  fill.u8(kVersion).u8(kLate).u8(kIfSet).u8(kDefined).u32(dataset.fill.size()).text(dataset.fill);
  header.message(Hdf5MessageType::kFillValue, fill.str(), true);
  constexpr int kLayoutVersion = 3, kContiguous = 1;
  header.message(
      Hdf5MessageType::kLayout,
      Text().u8(kLayoutVersion).u8(kContiguous).u64(dataset.address).u64(static_cast<uint64_t>(dataset.bytes)).str());
  if (dataset.mark != nullptr) header.message(Hdf5MessageType::kAttribute, mark_attribute(*dataset.mark));
  return header.str();
}

std::string hdf5_mark_heap(size_t marks) {
  Text heap;
  heap.text("GCOL").u32(1).u64(kHdf5MarkHeapBytes);
  for (size_t i = 1; i <= marks; ++i) heap.u16(i).u16(0).u32(0).u64(8).text("bfloat16");
  // The size of the free space, including its own head.
  heap.u64(0).u64(static_cast<uint64_t>(kHdf5MarkHeapBytes) - heap.size() + 8);
  return heap.pad_to(static_cast<size_t>(kHdf5MarkHeapBytes)).str();
}

std::string hdf5_text_heap(const std::vector<std::string_view>& texts) {
  Text objects;
  for (size_t i = 0; i < texts.size(); ++i) objects.u16(i + 1).u16(0).u32(0).u64(texts[i].size()).text(texts[i]).pad(8);
  constexpr size_t kHead = 16, kFreeHead = 16;
  const size_t size = std::max(static_cast<size_t>(kHdf5MarkHeapBytes), kHead + objects.size() + kFreeHead);
  Text heap;
  heap.text("GCOL").u32(1).u64(size).text(objects.str());
  heap.u64(0).u64(size - heap.size() + 8);  // the free space, including its own head
  return heap.pad_to(size).str();
}

std::string hdf5_text_attribute(std::string_view name, size_t bytes, uint64_t heap, uint32_t index) {
  constexpr int kText = 1, kUtf8 = 1;
  const std::string type = Text().u8(0x19).u8(kText).u8(kUtf8).u8(0).u32(16).text(fixed_point(1, false)).str();
  return attribute_head(name, type, dataspace({})).u32(bytes).u64(heap).u32(index).str();
}

std::string hdf5_list_attribute(std::string_view name, std::span<const std::string> texts) {
  constexpr size_t kMost = 64512;  // as in Keras; a message has at most 64 KiB
  const std::string space = dataspace({static_cast<int64_t>(texts.size())});
  // NumPy's empty list consists of numbers.
  if (texts.empty()) return attribute_head(name, floating(8, 11, 52, 1023), space).str();
  size_t longest = 1;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  if (longest > kMost / texts.size()) return "";
  constexpr int kNullPadded = 1;
  Text list = attribute_head(name, Text().u8(0x13).u8(kNullPadded).u8(0).u8(0).u32(longest).str(), space);
  for (const std::string& text : texts) list.text(text).pad_to(list.size() + longest - text.size());
  return list.str();
}

Result<Hdf5Group> hdf5_write_group(AtomicFile& file, int64_t begin, const std::vector<Hdf5Member>& members,
                                   const std::vector<std::string>& attributes) {
  return GroupWriter(file, begin).write(members, attributes);
}

int64_t hdf5_group_bytes(size_t members, size_t name_bytes) {
  const size_t leaves = members / kEntriesPerLeaf + 1;
  const size_t nodes = leaves / kChildrenPerNode * 2 + 2;  // including all levels above
  return static_cast<int64_t>(kHeapHeadBytes + 8 + name_bytes + 8 * members + leaves * kLeafBytes + nodes * kNodeBytes +
                              kGroupHeaderBytes);
}

std::string hdf5_superblock(const Hdf5Group& root, uint64_t end) {
  Text block;
  block.text(std::string_view("\x89HDF\r\n\x1a\n", 8)).put(0, 5).u8(8).u8(8).u8(0).u16(kLeafK).u16(kInternalK).u32(0);
  block.u64(0).u64(kHdf5Nowhere).u64(end).u64(kHdf5Nowhere);
  constexpr uint32_t kIsGroup = 1;
  return block.u64(0).u64(root.header).u32(kIsGroup).u32(0).u64(root.tree).u64(root.heap).str();
}

}  // namespace plimsoll::engine
