// Arrays that are read row by row, in order: what `convert` and `reduce` copy. A stream can be read several times, and
// always gives the same rows.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "data/dataset.h"

namespace plimsoll::engine {

struct StreamedArray {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sample;  // the shape of one row
  int64_t rows = 0;
  bool text = false;  // strings: its rows are cells (data/string_cells.h), and the last dimension of `sample` is one

  int64_t strings() const { return elements() / sample.back(); }  // of a row of strings
  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : sample) n *= d;
    return n;
  }
  Bytes row_bytes() const { return elements() * size_of(dtype); }
};

// Rows of the chosen arrays: for each one, its rows in a row-major block.
using RowBlock = std::span<const std::span<const std::byte>>;
using RowSink = std::function<Status(int64_t first, int64_t count, RowBlock rows)>;

class ArrayStream {
 public:
  virtual ~ArrayStream() = default;

  virtual const std::vector<StreamedArray>& arrays() const = 0;
  // Memory of one pass over these arrays, beyond what is held already.
  virtual Bytes buffer_bytes(std::span<const size_t> which) const = 0;
  // Passes the rows of the chosen arrays to `sink`, in order. The arrays have equally many rows.
  virtual Status stream(std::span<const size_t> which, const RowSink& sink) = 0;
};

// Opens `argument`, in the syntax of --data, without a model: the inputs as "x" and, if they are there, the targets as
// "y" and the sample weights as "sample_weight".
Result<std::unique_ptr<ArrayStream>> open_pair(const std::string& argument, const ReadOptions& read);
// The same, but all arrays of a file that names its arrays, under their names.
Result<std::unique_ptr<ArrayStream>> open_all(const std::string& argument, const ReadOptions& read);

// Rows that are read at once: as many as fit into 256 KiB, and at least one.
int64_t rows_at_once(Bytes row_bytes);

}  // namespace plimsoll::engine
