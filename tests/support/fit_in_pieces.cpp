// Trains a model with the batch cut into pieces inside each step (levers/split_batch.h), which no flag asks for, and
// saves it. The comparison with Keras runs it (tests/keras/test_split.py).
//
//   fit_in_pieces MODEL X.npy,Y.npy BATCH PIECES SAVED      one pass in order; prints the loss of each step
#include <cstdio>
#include <cstdlib>

#include "levers/split_batch.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

void fit_in_pieces(const std::string& model, const std::string& files, int64_t batch, int64_t pieces,
                   const std::string& saved) {
  OpenModel open = require(open_model(model, {}));
  const ColumnSource data = require(ColumnSource::create(require(open_data(files, data_spec(open.model, true))), {}));
  RunOptions options;
  options.batch_size = batch;
  options.data.data = files;  // the plan has their types
  options.forced->split = pieces;
  ModelRun run(std::move(open), options);
  const auto& levers = run.plan().levers;
  if (levers.size() != 1 || levers[0].name != kSplit || levers[0].count != pieces)
    throw std::runtime_error("the batch is not cut into these pieces");
  for (int64_t first = 0; first < data.samples(); first += batch)
    std::printf("%.9g\n", run.step(data, first, std::min(batch, data.samples() - first)));
  require(run.whole->save(saved));
}

}  // namespace
}  // namespace plimsoll::engine::testing

int main(int argc, char** argv) {
  if (argc != 6) return std::fputs("usage: fit_in_pieces MODEL X.npy,Y.npy BATCH PIECES SAVED\n", stderr), 2;
  plimsoll::engine::testing::fit_in_pieces(argv[1], argv[2], std::atoll(argv[3]), std::atoll(argv[4]), argv[5]);
  return 0;
}
