#include "formats/hdf5/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "formats/hdf5/dense.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// Adds a link after checking its name and the number of links.
Status add_link(Hdf5Reader& reader, std::string_view name, uint64_t address, std::vector<Hdf5Link>& links) {
  if (name.size() > static_cast<size_t>(limits::kHdf5NameBytes))
    return reader.damaged(fmt::format("a name of {} bytes is longer than {}", name.size(), limits::kHdf5NameBytes));
  if (name.empty() || name == "." || name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos)
    return reader.damaged("a group has a member without a proper name");
  if (links.size() >= static_cast<size_t>(limits::kHdf5Objects))
    return reader.damaged(fmt::format("a group has more than {} members", limits::kHdf5Objects));
  links.push_back({std::string(name), address});
  return {};
}

// Adds nothing for a soft or external link.
Status take_link(Hdf5Reader& reader, std::span<const std::byte> message, std::vector<Hdf5Link>& links) {
  Hdf5Cursor cursor(message);
  const int version = cursor.u8();
  const uint8_t flags = cursor.u8();
  const int kind = (flags & 8) != 0 ? cursor.u8() : 0;
  if ((flags & 4) != 0) cursor.skip(8);
  if ((flags & 16) != 0) cursor.skip(1);
  const auto name = cursor.text(cursor.number(size_t{1} << (flags & 3)));
  constexpr int kHardLink = 0;
  if (cursor.ok() && version == 1 && kind != kHardLink) return {};
  const uint64_t address = reader.region().address(cursor);
  if (!cursor.ok() || version != 1) return reader.damaged("a link message is damaged");
  return add_link(reader, name, address, links);
}

// Holds the names of a symbol table's entries.
class LocalHeap {
 public:
  static Result<LocalHeap> read(Hdf5Reader& reader, uint64_t address) {
    const auto& region = reader.region();
    PLIMSOLL_ASSIGN(const auto bytes,
                    reader.block(address, 8 + 2 * region.length_bytes + region.address_bytes, "local heap"));
    Hdf5Cursor cursor(bytes);
    const bool is_heap = cursor.signature("HEAP");
    cursor.skip(4);
    const uint64_t size = region.length(cursor);
    region.length(cursor);  // offset of the free space
    const uint64_t data = region.address(cursor);
    if (!is_heap || !cursor.ok()) return reader.damaged(fmt::format("there is no local heap at byte {}", address));
    LocalHeap heap;
    PLIMSOLL_ASSIGN(heap.names_, reader.block(data, size, "local heap"));
    return heap;
  }

  Result<std::string_view> name(const Hdf5Reader& reader, uint64_t offset) const {
    if (offset >= names_.size()) return reader.damaged("a name lies outside its heap");
    auto rest = std::span(names_).subspan(static_cast<size_t>(offset));
    rest = rest.first(std::min<size_t>(rest.size(), limits::kHdf5NameBytes + 1));
    const auto end = std::ranges::find(rest, std::byte{0});
    if (end == rest.end())
      return reader.damaged(
          fmt::format("a name does not end inside its heap, or is longer than {} bytes", limits::kHdf5NameBytes));
    return std::string_view(reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(end - rest.begin()));
  }

 private:
  std::vector<std::byte> names_;
};

class SymbolTable {
 public:
  SymbolTable(Hdf5Reader& reader, LocalHeap heap, std::vector<Hdf5Link>& links)
      : reader_(reader), heap_(std::move(heap)), links_(links) {}

  // Visits the nodes with a work list instead of recursion, so that a file cannot exhaust the stack.
  Status walk(uint64_t root) {
    const auto& region = reader_.region();
    std::vector<uint64_t> pending = {root};
    while (!pending.empty()) {
      const uint64_t address = pending.back();
      pending.pop_back();
      if (!visited_.insert(address).second) return reader_.damaged("a B-tree's nodes form a cycle");
      const size_t head_bytes = 8 + 2 * region.address_bytes;
      PLIMSOLL_ASSIGN(const auto head, reader_.start_of(address, head_bytes, "B-tree node"));
      if (Hdf5Cursor(head).signature("SNOD")) {
        PLIMSOLL_TRY(take_entries(address, head));
        continue;
      }
      Hdf5Cursor cursor(head);
      const bool is_node = cursor.signature("TREE") && cursor.u8() == 0;
      cursor.skip(1);
      const uint64_t used = cursor.u16();
      if (!is_node || !cursor.ok() || head.size() < head_bytes)
        return reader_.damaged(fmt::format("there is no B-tree node at byte {}", address));
      const size_t pair = region.length_bytes + region.address_bytes;
      PLIMSOLL_ASSIGN(const auto body, reader_.block(address + head_bytes, used * pair, "B-tree node"));
      Hdf5Cursor children(body);
      for (uint64_t i = 0; i < used; ++i) {
        region.length(children);  // the key; the names are taken from the entries
        pending.push_back(region.address(children));
      }
    }
    return {};
  }

 private:
  Status take_entries(uint64_t address, std::span<const std::byte> head) {
    const auto& region = reader_.region();
    Hdf5Cursor prefix(head);
    prefix.skip(6);
    const uint64_t count = prefix.u16();
    const size_t entry = region.length_bytes + region.address_bytes + 24;
    PLIMSOLL_ASSIGN(const auto body, reader_.block(address + 8, count * entry, "symbol table node"));
    Hdf5Cursor cursor(body);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t name = region.length(cursor), object = region.address(cursor);
      constexpr uint32_t kSoftLink = 2;
      const uint32_t kind = cursor.u32();
      cursor.skip(20);
      if (kind == kSoftLink) continue;
      PLIMSOLL_ASSIGN(const auto text, heap_.name(reader_, name));
      PLIMSOLL_TRY(add_link(reader_, text, object, links_));
    }
    return {};
  }

  Hdf5Reader& reader_;
  LocalHeap heap_;
  std::vector<Hdf5Link>& links_;
  std::unordered_set<uint64_t> visited_;
};

Status read_symbol_table(Hdf5Reader& reader, std::span<const std::byte> message, std::vector<Hdf5Link>& links) {
  Hdf5Cursor cursor(message);
  const uint64_t tree = reader.region().address(cursor), heap_address = reader.region().address(cursor);
  if (!cursor.ok()) return reader.damaged("a symbol table message is truncated");
  PLIMSOLL_ASSIGN(auto heap, LocalHeap::read(reader, heap_address));
  return SymbolTable(reader, std::move(heap), links).walk(tree);
}

}  // namespace

Result<std::vector<Hdf5Link>> read_links(Hdf5Reader& reader, const Hdf5Header& group) {
  std::vector<Hdf5Link> links;
  for (const auto& message : group.messages) {
    if (message.shared) continue;
    if (message.type == Hdf5MessageType::kSymbolTable)
      PLIMSOLL_TRY(read_symbol_table(reader, message.body, links));
    else if (message.type == Hdf5MessageType::kLinkInfo)
      PLIMSOLL_TRY(read_dense(reader, Hdf5Dense::kLinks, message.body,
                              [&](std::span<const std::byte> link) { return take_link(reader, link, links); }));
    else if (message.type == Hdf5MessageType::kLink)
      PLIMSOLL_TRY(take_link(reader, message.body, links));
  }
  std::ranges::sort(links, {}, &Hdf5Link::name);
  const auto same = std::ranges::adjacent_find(links, {}, &Hdf5Link::name);
  if (same != links.end()) return reader.damaged(fmt::format("a group has two members named {}", same->name));
  return links;
}

}  // namespace plimsoll::engine
