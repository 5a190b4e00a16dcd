#include "backends/cpu/onednn/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <vector>

namespace plimsoll::engine::cpu {

namespace {

struct KindName {
  LayoutKind kind;
  std::string_view name;
  int rank;
};
constexpr KindName kKinds[] = {{LayoutKind::kImage, "nchw", 4},           {LayoutKind::kWeights, "oihw", 4},
                               {LayoutKind::kGroupedWeights, "goihw", 5}, {LayoutKind::kImage, "ncdhw", 5},
                               {LayoutKind::kWeights, "oidhw", 5},        {LayoutKind::kGroupedWeights, "goidhw", 6}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool parse_number(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

bool parse_numbers(std::string_view text, int rank, dnnl_dim_t* values) {
  const auto parts = split(text, ',');
  if (parts.size() != static_cast<size_t>(rank)) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parse_number(parts[i], values[i])) return false;
  }
  return true;
}

bool parse_blocks(std::string_view text, int rank, dnnl_blocking_desc_t& blocking) {
  if (text == "-") return true;
  for (std::string_view part : split(text, ',')) {
    const auto pair = split(part, 'x');
    if (pair.size() != 2 || blocking.inner_nblks == DNNL_MAX_NDIMS) return false;
    const int i = blocking.inner_nblks++;
    if (!parse_number(pair[0], blocking.inner_blks[i]) || !parse_number(pair[1], blocking.inner_idxs[i])) return false;
    if (blocking.inner_idxs[i] >= rank) return false;
  }
  return true;
}

std::string join(const dnnl_dim_t* values, int count) {
  return fmt::format("{}", fmt::join(values, values + count, ","));
}

}  // namespace

dnnl::memory::desc plain_desc(LayoutKind kind, const Dims& dims) {
  using Tag = dnnl::memory::format_tag;
  const auto of_rank = [&](size_t plane, Tag in_plane, Tag in_volume) {
    return dims.size() == plane ? in_plane : in_volume;
  };
  const Tag tag = kind == LayoutKind::kImage     ? of_rank(4, Tag::nhwc, Tag::ndhwc)
                  : kind == LayoutKind::kWeights ? of_rank(4, Tag::hwio, Tag::dhwio)
                                                 : of_rank(5, Tag::hwigo, Tag::dhwigo);
  return {dims, dnnl::memory::data_type::f32, tag};
}

dnnl::memory::desc any_desc(const Dims& dims) {
  return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

Result<Layout> layout_of(LayoutKind kind, const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& d = desc.data;
  const bool blocked = d.format_kind == dnnl_blocked && d.extra.flags == dnnl_memory_extra_flag_none &&
                       d.offset0 == 0 && d.data_type == dnnl_f32;
  if (!blocked)
    return fail(ErrorCode::kInternal, "oneDNN chose a layout that cannot be described by strides and inner blocks");
  if (desc == plain_desc(kind, Dims(d.dims, d.dims + d.ndims))) return Layout{};
  const auto& blocking = d.format_desc.blocking;
  std::string blocks;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    blocks += fmt::format("{}{}x{}", i == 0 ? "" : ",", blocking.inner_blks[i], blocking.inner_idxs[i]);
  }
  const auto* entry = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const KindName& k) { return k.kind == kind && k.rank == d.ndims; });
  Layout layout;
  layout.name = fmt::format("{}:{}:{}:{}:{}", entry->name, join(d.dims, d.ndims), join(d.padded_dims, d.ndims),
                            join(blocking.strides, d.ndims), blocks.empty() ? "-" : blocks);
  layout.bytes = static_cast<Bytes>(desc.get_size());
  return layout;
}

Result<NamedDesc> desc_from_name(const std::string& name) {
  const auto parts = split(name, ':');
  dnnl_memory_desc_t d{};
  const auto* entry =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindName& k) { return k.name == parts[0]; });
  if (parts.size() == 5 && entry != std::end(kKinds)) {
    d.ndims = entry->rank;
    d.data_type = dnnl_f32;
    d.format_kind = dnnl_blocked;
    auto& blocking = d.format_desc.blocking;
    if (parse_numbers(parts[1], d.ndims, d.dims) && parse_numbers(parts[2], d.ndims, d.padded_dims) &&
        parse_numbers(parts[3], d.ndims, blocking.strides) && parse_blocks(parts[4], d.ndims, blocking)) {
      return NamedDesc{entry->kind, dnnl::memory::desc(d)};
    }
  }
  return fail(ErrorCode::kBadPlan, fmt::format("'{}' is not a layout of the CPU backend", name));
}

}  // namespace plimsoll::engine::cpu
