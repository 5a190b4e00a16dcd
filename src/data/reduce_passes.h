// Passes over a stream as float64 numbers. Private to data/.
#pragma once

#include <fmt/format.h>

#include <cmath>

#include "data/checks.h"
#include "data/reduce.h"
#include "formats/file/array_source.h"

namespace plimsoll::engine {

// Rows as numbers: those of `x`, and those of `y` if it is read.
struct NumberBlock {
  int64_t count = 0;
  const double* x = nullptr;
  const double* y = nullptr;
};

inline Bytes number_bytes(int64_t elements, int64_t rows) {
  return elements * rows * static_cast<Bytes>(sizeof(double));
}

template <typename F>
Status for_numbers(ArrayStream& data, bool with_y, F f) {
  const std::array<size_t, 2> both = {0, 1};
  const auto which = std::span(both).first(with_y ? 2 : 1);
  std::array<std::vector<double>, 2> numbers;
  return data.stream(which, [&](int64_t first, int64_t count, RowBlock rows) -> Status {
    for (size_t k = 0; k < which.size(); ++k) {
      const StreamedArray& array = data.arrays()[which[k]];
      const int64_t elements = array.elements();
      numbers[k].resize(static_cast<size_t>(count * elements));
      for (int64_t i = 0; i < count * elements; ++i) {
        const double value = element(array.dtype, rows[k].data(), i);
        if (!std::isfinite(value))
          return fail(ErrorCode::kDataNotFinite, fmt::format("{}: row {} holds {}", array.name, first + i / elements,
                                                             element_text(array.dtype, rows[k].data(), i)));
        numbers[k][static_cast<size_t>(i)] = value;
      }
    }
    return f(NumberBlock{count, numbers[0].data(), with_y ? numbers[1].data() : nullptr});
  });
}

// Counts rows over several passes.
class PassCounter {
 public:
  PassCounter(const ArrayStream& data, int64_t passes, const Passes& progress)
      : total_(passes * data.arrays()[0].rows), progress_(progress) {}

  Status add(int64_t rows) {
    done_ += rows;
    return progress_ ? progress_(done_, total_) : Status();
  }

 private:
  int64_t done_ = 0, total_;
  const Passes& progress_;
};

// The mean of each column, in one pass.
template <typename Column>
Result<std::vector<double>> means(ArrayStream& data, bool with_y, int64_t columns, PassCounter& counter,
                                  Column block_of) {
  std::vector<double> sums(static_cast<size_t>(columns), 0.0);
  int64_t rows = 0;
  PLIMSOLL_TRY(for_numbers(data, with_y, [&](const NumberBlock& block) -> Status {
    const double* x = block_of(block);
    for (int64_t r = 0; r < block.count; ++r)
      for (int64_t c = 0; c < columns; ++c) sums[static_cast<size_t>(c)] += x[r * columns + c];
    rows += block.count;
    return counter.add(block.count);
  }));
  for (double& sum : sums) sum /= static_cast<double>(rows);
  return sums;
}

}  // namespace plimsoll::engine
