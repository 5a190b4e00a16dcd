#include "data/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/digest.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kPieces = 64;
constexpr Bytes kPiece = 16 * kKiB;

Status read_bytes(const Column& column, Bytes at, std::span<std::byte> into) {
  if (column.file) return column.file->pread_exact(column.offset + at, into);
  std::copy_n(column.memory + column.offset + at, into.size(), into.begin());
  return {};
}

Result<std::string> digest_of(const Column& column, Bytes bytes) {
  Digest digest;
  std::array<std::byte, kPiece> piece;
  const bool whole = bytes <= kPieces * kPiece;
  const int64_t pieces = whole ? (bytes + kPiece - 1) / kPiece : kPieces;
  for (int64_t i = 0; i < pieces; ++i) {
    // Dividing first avoids overflow. The last piece ends at the end of the array.
    const Bytes at = whole ? i * kPiece : i + 1 == pieces ? bytes - kPiece : (bytes - kPiece) / (pieces - 1) * i;
    const auto part = std::span(piece).first(static_cast<size_t>(std::min(kPiece, bytes - at)));
    PLIMSOLL_TRY(read_bytes(column, at, part));
    digest.add(part);
  }
  return digest.text();
}

Status add(const std::vector<Column>& columns, const char* role, int64_t samples, nlohmann::json& identity) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    if (!column.exists()) continue;  // every sample has a weight of 1
    const Bytes bytes = samples * column.stored_bytes();
    const std::string name = fmt::format("{} {}", role, i + 1);
    identity[name] = fmt::format("{} samples of [{}] {}, {} bytes", samples, fmt::join(column.type.shape.dims, ", "),
                                 keras_name(column.type.dtype), bytes);
    if (column.rows) {
      PLIMSOLL_ASSIGN(identity["contents of " + name], column.rows->digest(column.field));
      continue;
    }
    PLIMSOLL_ASSIGN(identity["contents of " + name], digest_of(column, bytes));
  }
  return {};
}

}  // namespace

Result<nlohmann::json> data_identity(const DataSet& data) {
  nlohmann::json identity = nlohmann::json::object();
  PLIMSOLL_TRY(add(data.inputs, "input", data.samples, identity));
  PLIMSOLL_TRY(add(data.targets, "target", data.samples, identity));
  PLIMSOLL_TRY(add(data.weights, "sample weights", data.samples, identity));
  return identity;
}

}  // namespace plimsoll::engine
