// Copies of strips, fills, broadcasts, padding and transposition, with the widest words that alignment allows. The
// kernels only move bits.
#include "backends/cuda/move/launch.h"

#include <algorithm>
#include <type_traits>

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

// The widest word in bytes that divides all of `lengths` (bytes, addresses).
template <typename... Lengths>
int word_for(Lengths... lengths) {
  const uint64_t all = (uint64_t{16} | ... | static_cast<uint64_t>(lengths));
  return static_cast<int>(all & (~all + 1));
}
uint64_t address(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

// Calls f.operator()<Word>() with a word type of `bytes` bytes.
template <typename F>
void with_word(int bytes, F f) {
  if (bytes == 16) f.template operator()<uint4>();
  if (bytes == 8) f.template operator()<uint2>();
  if (bytes == 4) f.template operator()<uint32_t>();
  if (bytes == 2) f.template operator()<uint16_t>();
  if (bytes == 1) f.template operator()<uint8_t>();
}

// The copies of one launch share the word size; lengths are in words.
struct Copies {
  struct One {
    const void* from;
    void* to;
    int64_t count, words, from_pitch, to_pitch;
    Divider by_words;  // valid if words and count * words are below 2^31
    bool small;
  } one[kCopiesAtOnce];
};

constexpr int kWordsAThread = 4;

template <typename Word>
__global__ void __launch_bounds__(kThreads) copy_strips(Copies copies) {
  const auto& copy = copies.one[blockIdx.y];
  const auto* from = static_cast<const Word*>(copy.from);
  auto* to = static_cast<Word*>(copy.to);
  const int64_t items = copy.count * copy.words, step = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
#pragma unroll 4
  for (; item < items; item += step) {
    int64_t strip, word;
    if (copy.small) {
      auto rest = static_cast<uint32_t>(item);
      strip = copy.by_words.split(rest);
      word = rest;
    } else {
      strip = item / copy.words;
      word = item % copy.words;
    }
    to[strip * copy.to_pitch + word] = from[strip * copy.from_pitch + word];
  }
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    fill_words(Word* to, Word word, int64_t words, uint8_t* rest, int rest_bytes) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words; i += step) to[i] = word;
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < rest_bytes) {
    uint8_t bytes[sizeof(Word)];
    memcpy(bytes, &word, sizeof(Word));
    const auto wanted = static_cast<int>(threadIdx.x);
    uint8_t mine = 0;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Word)); ++i)
      if (i == wanted) mine = bytes[i];
    rest[threadIdx.x] = mine;
  }
}

// Sizes and strides in words of y. The innermost axis is either whole words of x, or one element repeated.
struct BroadcastWalk {
  int axes;
  int64_t sizes[BroadcastShape::kAxes], strides[BroadcastShape::kAxes];
  Divider dividers[BroadcastShape::kAxes];
};

template <typename Index, bool kSmall>
__device__ int64_t source_of(const BroadcastWalk& walk, Index item) {
  int64_t at = 0;
#pragma unroll
  for (int axis = BroadcastShape::kAxes - 1; axis >= 0; --axis) {
    if (axis >= walk.axes) continue;
    if constexpr (kSmall) {
      uint32_t rest = item;
      const uint32_t above = walk.dividers[axis].split(rest);
      at += rest * walk.strides[axis];
      item = above;
    } else {
      at += static_cast<int64_t>(item % walk.sizes[axis]) * walk.strides[axis];
      item /= walk.sizes[axis];
    }
  }
  return at;
}

// Part is the type of one read: a whole word, or one element that is repeated to fill a word.
template <typename Word, typename Part, bool kSmall>
__global__ void __launch_bounds__(kThreads)
    broadcast(BroadcastWalk walk, int64_t words, const Part* __restrict__ x, Word* __restrict__ y) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= words) return;
  using Index = std::conditional_t<kSmall, uint32_t, int64_t>;
  const Part part = x[source_of<Index, kSmall>(walk, static_cast<Index>(item))];
  Word word;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Word) / sizeof(Part)); ++i)
    memcpy(reinterpret_cast<char*>(&word) + i * sizeof(Part), &part, sizeof(Part));
  y[item] = word;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads) shift_image(ImageShift g, int words, Divider by_words, Divider by_column,
                                                        const Word* __restrict__ x, Word* __restrict__ y) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  uint32_t word = item;
  uint32_t column = by_words.split(word);
  const uint32_t row = by_column.split(column);
  if (row >= static_cast<uint32_t>(g.oh)) return;
  const int from_row = static_cast<int>(row) - g.top, from_column = static_cast<int>(column) - g.left;
  const bool inside = from_row >= 0 && from_row < g.h && from_column >= 0 && from_column < g.w;
  const int64_t from = (static_cast<int64_t>(from_row) * g.w + from_column) * words + word;
  const int64_t image_in = static_cast<int64_t>(g.h) * g.w * words,
                image_out = static_cast<int64_t>(g.oh) * g.ow * words;
  for (int64_t image = blockIdx.y; image < g.n; image += gridDim.y)
    y[image * image_out + item] = inside ? x[image * image_in + from] : Word{};
}

constexpr int kTile = 64, kTileColumns = 32, kTileRows = 8;

struct Moves {
  Transposition of[kMovesAtOnce];
  int first[kMovesAtOnce];  // index of each matrix's first tile among all tiles
  int count = 0;

  // The last matrix whose first tile is at or before `tile`.
  __device__ int holding(int tile) const {
    int at = 0;
    for (int half = kMovesAtOnce / 2; half > 0; half /= 2)
      if (at + half < count && first[at + half] <= tile) at += half;
    return at;
  }
};

template <typename Word>
__global__ void __launch_bounds__(kTileColumns* kTileRows) transpose(const __grid_constant__ Moves moves) {
  __shared__ Word words[kTile][kTile + 1];
  const int at = moves.holding(static_cast<int>(blockIdx.x));
  const Transposition& move = moves.of[at];
  const int tile = static_cast<int>(blockIdx.x) - moves.first[at];
  const int across = (move.columns + kTile - 1) / kTile;
  const int row = tile / across * kTile, column = tile % across * kTile;
  const auto* from = static_cast<const Word*>(move.from);
  auto* to = static_cast<Word*>(move.to);
  const auto each = [](auto f) {
#pragma unroll
    for (int i = 0; i < kTile; i += kTileRows)
#pragma unroll
      for (int j = 0; j < kTile; j += kTileColumns)
        f(i + static_cast<int>(threadIdx.y), j + static_cast<int>(threadIdx.x));
  };
  each([&](int i, int j) {
    if (row + i < move.rows && column + j < move.columns)
      words[i][j] = from[static_cast<int64_t>(row + i) * move.columns + column + j];
  });
  __syncthreads();
  each([&](int i, int j) {
    if (column + i < move.columns && row + j < move.rows)
      to[static_cast<int64_t>(column + i) * move.rows + row + j] = words[j][i];
  });
}

template <typename Word, typename Part>
void launch_broadcast_words(const BroadcastWalk& walk, int64_t words, const void* x, void* y, cudaStream_t stream) {
  const unsigned blocks = blocks_for(words, kThreads);
  const auto* from = static_cast<const Part*>(x);
  auto* to = static_cast<Word*>(y);
  if (words < (int64_t{1} << 31))
    broadcast<Word, Part, true><<<blocks, kThreads, 0, stream>>>(walk, words, from, to);
  else
    broadcast<Word, Part, false><<<blocks, kThreads, 0, stream>>>(walk, words, from, to);
  check_launch();
}

struct ConstantBytes {
  static constexpr int kBytes = 4000;  // of the 4,096 that all arguments of a kernel may have
  uint8_t bytes[kBytes];
};

__global__ void write_constant(uint8_t* to, ConstantBytes from, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from.bytes[i];
}

}  // namespace

void launch_copies(const StripCopy* copies, int count, cudaStream_t stream) {
  assert(count <= kCopiesAtOnce);
  int bytes = 16;
  for (int i = 0; i < count; ++i) {
    const StripCopy& c = copies[i];
    bytes = std::min(bytes, word_for(c.bytes, c.from_pitch, c.to_pitch, address(c.from), address(c.to)));
  }
  Copies list{};
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    const StripCopy& c = copies[i];
    const int64_t words = c.bytes / bytes;
    const bool small = c.count * words < (int64_t{1} << 31);
    list.one[i] = {
        c.from, c.to, c.count, words, c.from_pitch / bytes, c.to_pitch / bytes, small ? Divider(words) : Divider(),
        small};
    most = std::max(most, c.count * words);
  }
  const int64_t blocks = std::min<int64_t>((most + kThreads * kWordsAThread - 1) / (kThreads * kWordsAThread), 1 << 20);
  with_word(bytes, [&]<typename Word>() {
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    copy_strips<Word><<<grid, kThreads, 0, stream>>>(list);
  });
  check_launch();
}

void launch_copy(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream);
}

void launch_fill(void* to, uint64_t pattern, int element_bytes, int64_t elements, cudaStream_t stream) {
  uint4 word;
  for (int i = 0; i < 16; i += element_bytes) memcpy(reinterpret_cast<char*>(&word) + i, &pattern, element_bytes);
  const int64_t bytes = elements * element_bytes, words = bytes / 16;
  const int64_t blocks = std::clamp<int64_t>((words + kThreads * 4 - 1) / (kThreads * 4), 1, 1 << 20);
  fill_words<uint4><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), word, words, static_cast<uint8_t*>(to) + words * 16, static_cast<int>(bytes % 16));
  check_launch();
}

void launch_constant(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  for (int64_t begin = 0; begin < bytes; begin += ConstantBytes::kBytes) {
    const int count = static_cast<int>(std::min<int64_t>(bytes - begin, ConstantBytes::kBytes));
    ConstantBytes part{};
    memcpy(part.bytes, static_cast<const char*>(from) + begin, static_cast<size_t>(count));
    write_constant<<<1, kThreads, 0, stream>>>(static_cast<uint8_t*>(to) + begin, part, count);
  }
  check_launch();
}

void launch_broadcast(const BroadcastShape& shape, int element_bytes, const void* x, void* y, cudaStream_t stream) {
  const int last = shape.axes - 1;
  const bool repeats = last >= 0 && shape.strides[last] == 0;
  // Whole words must fit the innermost axis of y and, unless x is repeated there, every stride of x.
  uint64_t lengths = last < 0 ? 0 : static_cast<uint64_t>(shape.sizes[last] * element_bytes);
  if (last < 0) lengths = static_cast<uint64_t>(element_bytes);
  if (!repeats)
    for (int i = 0; i < last; ++i) lengths |= static_cast<uint64_t>(shape.strides[i] * element_bytes);
  const int bytes = word_for(lengths, address(x), address(y));
  const int each = bytes / element_bytes;  // elements per word
  BroadcastWalk walk{};
  walk.axes = shape.axes;
  int64_t words = 1;
  for (int i = 0; i < shape.axes; ++i) {
    walk.sizes[i] = i == last ? shape.sizes[i] / each : shape.sizes[i];
    walk.strides[i] = repeats || i == last ? shape.strides[i] : shape.strides[i] / each;
    words *= walk.sizes[i];
    if (walk.sizes[i] < (int64_t{1} << 31)) walk.dividers[i] = Divider(walk.sizes[i]);
  }
  with_word(bytes, [&]<typename Word>() {
    if (!repeats) return launch_broadcast_words<Word, Word>(walk, words, x, y, stream);
    with_word(element_bytes, [&]<typename Part>() {
      if constexpr (sizeof(Part) <= sizeof(Word)) launch_broadcast_words<Word, Part>(walk, words, x, y, stream);
    });
  });
}

void launch_shift(const ImageShift& g, const void* x, void* y, cudaStream_t stream) {
  with_word(word_for(g.pixel_bytes, address(x), address(y)), [&]<typename Word>() {
    const int words = static_cast<int>(g.pixel_bytes / static_cast<int64_t>(sizeof(Word)));
    const int64_t items = static_cast<int64_t>(g.oh) * g.ow * words;
    const dim3 grid(blocks_for(items, kThreads), static_cast<unsigned>(std::min<int64_t>(g.n, 65535)));
    shift_image<<<grid, kThreads, 0, stream>>>(g, words, Divider(words), Divider(g.ow), static_cast<const Word*>(x),
                                               static_cast<Word*>(y));
    check_launch();
  });
}

void launch_transpositions(const Transposition* of, int count, int element_bytes, cudaStream_t stream) {
  assert(count <= kMovesAtOnce);
  Moves moves;
  moves.count = count;
  int tiles = 0;
  for (int i = 0; i < count; ++i) {
    moves.of[i] = of[i];
    moves.first[i] = tiles;
    tiles += static_cast<int>(blocks_for(of[i].rows, kTile) * blocks_for(of[i].columns, kTile));
  }
  const dim3 block(kTileColumns, kTileRows);
  if (element_bytes == 4)
    transpose<uint32_t><<<static_cast<unsigned>(tiles), block, 0, stream>>>(moves);
  else
    transpose<uint16_t><<<static_cast<unsigned>(tiles), block, 0, stream>>>(moves);
  check_launch();
}

}  // namespace plimsoll::engine::cuda
