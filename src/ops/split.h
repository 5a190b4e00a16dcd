// What an op does with the samples of a batch that is cut into pieces (levers/split_batch.h).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::engine {

// A way in which a node can run for one piece of the batch. One letter per input and per output; the last letter of a
// list holds for all that follow.
//   s       consists of samples, one after the other along the first dimension; a result reads only its own samples
//   w       a value that all pieces share
//   +       (outputs) the sum of what the pieces compute
//   m, v    (outputs) mean and variance of the rows, merged from those of the pieces
// The names are attributes that a piece needs changed.
struct SplitForm {
  std::string inputs, outputs;
  std::vector<std::string> rows = {};  // these count rows of the first dimension: a number, or the first of a list
  std::string rows_before = {};        // gets the number of rows before the piece
  std::string rows_of_batch = {};      // gets the rows of the whole first input: all its dimensions but the last
};

// Returns the forms of a node; none: it cannot be cut. A form fits if no input of letter w consists of samples.
std::vector<SplitForm> split_forms(const Graph& graph, const Node& node);

// Returns the letter of input or output `i`.
char letter_of(const std::string& letters, size_t i);

// The attributes of a piece: the rows of the first dimension that come before it (dropout, random numbers), and the
// rows that the sums of BatchNormalization's gradient are over. Without them: none, and the rows of its own tensor.
inline constexpr const char* kRowsBefore = "rows_before";
inline constexpr const char* kSummedRows = "summed_rows";
inline int64_t rows_before(const Attrs& attrs) {
  return attrs.has(kRowsBefore) ? attrs.integer(kRowsBefore) : 0;
}
inline double summed_rows(const Attrs& attrs, double own) {
  return attrs.has(kSummedRows) ? static_cast<double>(attrs.integer(kSummedRows)) : own;
}

}  // namespace plimsoll::engine
