#include "formats/hdf5/attributes.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "formats/hdf5/dense.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// Returns the number of elements, or nullopt if the dataspace cannot be read.
std::optional<int64_t> count_elements(const Hdf5Reader& reader, std::span<const std::byte> dataspace) {
  Hdf5Cursor cursor(dataspace);
  const int version = cursor.u8();
  const int rank = cursor.u8();
  cursor.skip(1);
  constexpr int kNull = 2;
  const int kind = version == 2 ? cursor.u8() : 0;
  if (version == 1) cursor.skip(5);
  if ((version != 1 && version != 2) || rank > limits::kHdf5Rank) return std::nullopt;
  if (kind == kNull) return 0;
  std::optional<int64_t> count = 1;
  for (int i = 0; i < rank; ++i) {
    const uint64_t dim = reader.region().length(cursor);
    if (dim > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    count = count ? checked_multiply(*count, static_cast<int64_t>(dim)) : count;
  }
  return cursor.ok() ? count : std::nullopt;
}

class Texts {
 public:
  Texts(Hdf5Reader& reader, const Hdf5Attribute& attribute) : reader_(reader), attribute_(attribute) {}

  Result<std::vector<std::string>> read() {
    const auto count = count_elements(reader_, attribute_.dataspace);
    Hdf5Cursor type(attribute_.datatype);
    const int kind = type.u8() & 0x0f;
    const auto bits = static_cast<uint32_t>(type.number(3));
    const uint64_t size = type.u32();
    if (!count || !type.ok()) return damaged("is damaged");
    if (*count == 0) return std::vector<std::string>();
    if (*count > limits::kHdf5Texts) return damaged(fmt::format("has more than {} texts", limits::kHdf5Texts));
    constexpr int kString = 3, kVariable = 9;
    constexpr uint32_t kText = 1;
    const bool variable = kind == kVariable && (bits & 0xf) == kText;
    if (kind != kString && !variable) return damaged("is not text");
    std::vector<std::string> texts;
    Hdf5Cursor value(attribute_.value);
    for (int64_t i = 0; i < *count; ++i) {
      if (variable)
        PLIMSOLL_TRY(take_variable(value, texts));
      else
        texts.push_back(fixed(value.text(size), bits));
      if (!value.ok()) return damaged("is shorter than its shape says");
      bytes_ += static_cast<int64_t>(texts.back().size());
      if (bytes_ > limits::kHdf5TextBytes)
        return damaged(fmt::format("has more than {} of text", format_bytes(limits::kHdf5TextBytes)));
    }
    return texts;
  }

 private:
  tl::unexpected<Error> damaged(std::string_view what) const {
    return reader_.damaged(fmt::format("its attribute {} {}", attribute_.name, what));
  }

  static std::string fixed(std::string_view text, uint32_t bits) {
    constexpr uint32_t kSpacePadded = 2;
    text = text.substr(0, text.find('\0'));
    if ((bits & 0xf) == kSpacePadded) text = text.substr(0, text.find_last_not_of(' ') + 1);
    return std::string(text);
  }

  // The value is the length, and the place of the text in a global heap.
  Status take_variable(Hdf5Cursor& value, std::vector<std::string>& texts) {
    const uint64_t bytes = value.u32(), heap = reader_.region().address(value), index = value.u32();
    texts.emplace_back();
    if (!value.ok() || bytes == 0) return {};
    PLIMSOLL_ASSIGN(const std::string_view text, reader_.heap_text(heap, index));
    if (text.size() < bytes) return damaged("is shorter than it says");
    texts.back() = text.substr(0, static_cast<size_t>(bytes));
    texts.back().resize(std::min(texts.back().size(), texts.back().find('\0')));
    return {};
  }

  Hdf5Reader& reader_;
  const Hdf5Attribute& attribute_;
  int64_t bytes_ = 0;
};

}  // namespace

std::optional<Hdf5Attribute> parse_attribute(std::span<const std::byte> message) {
  Hdf5Cursor cursor(message);
  const int version = cursor.u8();
  const uint8_t flags = cursor.u8();
  const uint64_t name = cursor.u16(), datatype = cursor.u16(), dataspace = cursor.u16();
  if (version < 1 || version > 3) return std::nullopt;
  if (version > 1 && flags != 0) return std::nullopt;  // the type is stored elsewhere
  if (version == 3) cursor.skip(1);
  const auto take = [&](uint64_t size) {
    const auto taken = cursor.bytes(size);
    if (version == 1 && size % 8 != 0) cursor.skip(8 - size % 8);
    return taken;
  };
  Hdf5Attribute attribute;
  const auto text = take(name);
  attribute.name = {reinterpret_cast<const char*>(text.data()), text.size()};
  attribute.datatype = take(datatype);
  attribute.dataspace = take(dataspace);
  attribute.value = cursor.bytes(cursor.left());
  if (!cursor.ok()) return std::nullopt;
  attribute.name = attribute.name.substr(0, attribute.name.find('\0'));
  return attribute;
}

Result<std::optional<std::vector<std::string>>> read_text_attribute(Hdf5Reader& reader, const Hdf5Header& header,
                                                                    std::string_view name) {
  std::optional<std::vector<std::string>> texts;
  const auto look = [&](std::span<const std::byte> message) -> Status {
    const auto attribute = parse_attribute(message);
    if (!attribute || attribute->name != name || texts) return {};
    PLIMSOLL_ASSIGN(texts, Texts(reader, *attribute).read());
    return {};
  };
  for (const auto& message : header.messages) {
    if (message.shared) continue;
    if (message.type == Hdf5MessageType::kAttribute)
      PLIMSOLL_TRY(look(message.body));
    else if (message.type == Hdf5MessageType::kAttributeInfo)
      PLIMSOLL_TRY(read_dense(reader, Hdf5Dense::kAttributes, message.body, look));
  }
  return texts;
}

}  // namespace plimsoll::engine
