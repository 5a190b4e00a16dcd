#include "model/geometry.h"

#include <fmt/format.h>

namespace plimsoll::engine {
namespace {

Result<KernelWindow> place_causal(int64_t input, int64_t extent, int64_t stride) {
  // Output t reads inputs up to t * stride, so all of the padding is at the front.
  return KernelWindow{(input - 1) / stride + 1, extent - 1, 0};
}

ValueId with_dims(const BuildCall& call, ValueId value, std::vector<int64_t> dims) {
  return call.shape(value).dims == dims ? value : call.add("reshape", {value}, {{"shape", std::move(dims)}});
}

}  // namespace

Result<std::vector<KernelWindow>> place_windows(const Geometry& g, const Shape& sample, const std::string& where) {
  PLIMSOLL_TRY(need_rank(sample, g.rank() + 1, where));
  std::vector<KernelWindow> windows;
  for (size_t d = 0; d < g.rank(); ++d) {
    const bool same = g.padding == WindowPadding::kSame;
    PLIMSOLL_ASSIGN(KernelWindow window, g.padding == WindowPadding::kCausal
                                             ? place_causal(sample[d], g.extent(d), g.strides[d])
                                             : place_window(sample[d], g.extent(d), g.strides[d], same, where));
    windows.push_back(window);
  }
  return windows;
}

Result<Shape> image_shape(const std::vector<KernelWindow>& windows, int64_t channels, const std::string& where) {
  std::vector<int64_t> dims;
  for (const KernelWindow& window : windows) dims.push_back(window.output);
  dims.push_back(channels);
  return checked_shape(std::move(dims), where);
}

Result<Shape> kernel_shape(const Geometry& g, int64_t in, int64_t out, const std::string& where) {
  std::vector<int64_t> dims = g.kernel;
  dims.insert(dims.end(), {in, out});
  return checked_shape(std::move(dims), where);
}

std::string op_name(std::string_view op, size_t rank, std::string_view suffix) {
  return fmt::format("{}{}d{}", op, op_rank(rank), suffix);
}

std::vector<int64_t> op_sizes(const Sizes& sizes, int64_t outer) {
  std::vector<int64_t> all(op_rank(sizes.size()) - sizes.size(), outer);
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

std::vector<int64_t> op_pads(const std::vector<KernelWindow>& windows) {
  std::vector<int64_t> pads(2 * (op_rank(windows.size()) - windows.size()), 0);
  for (const KernelWindow& window : windows) pads.insert(pads.end(), {window.before, window.after});
  return pads;
}

ValueId as_image(const BuildCall& call, ValueId image, size_t rank) {
  std::vector<int64_t> dims = call.shape(image).dims;
  dims.insert(dims.begin() + 1, op_rank(rank) - rank, 1);
  return with_dims(call, image, std::move(dims));
}

ValueId as_kernel(const BuildCall& call, ValueId kernel, size_t rank) {
  std::vector<int64_t> dims = call.shape(kernel).dims;
  dims.insert(dims.begin(), op_rank(rank) - rank, 1);
  return with_dims(call, kernel, std::move(dims));
}

ValueId as_output(const BuildCall& call, ValueId image, size_t rank) {
  return rank == op_rank(rank) ? image : with_dims(call, image, call.output_dims());
}

}  // namespace plimsoll::engine
