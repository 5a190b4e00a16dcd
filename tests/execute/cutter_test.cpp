#include "execute/window.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kEpochs = 2;
const RunCut kCut{17, 3, {6, 4}};  // windows of 6, 6 and 5 samples, in micro-batches of 4 and the rest

std::vector<BatchRequest> all_of(Cutter cutter) {
  std::vector<BatchRequest> list;
  while (const auto request = cutter.next()) list.push_back(*request);
  return list;
}

TEST(Cutter, HandsOutEverySampleOncePerEpochAndEndsEachWindow) {
  const std::vector<BatchRequest> epoch = {{0, 0, 4, false}, {0, 4, 2, true},   {0, 6, 4, false},
                                           {0, 10, 2, true}, {0, 12, 4, false}, {0, 16, 1, true}};
  std::vector<BatchRequest> expected = epoch;
  for (BatchRequest request : epoch) {
    request.epoch = 1;
    expected.push_back(request);
  }
  EXPECT_EQ(all_of(Cutter(kCut, kEpochs)), expected);
}

TEST(Cutter, GoesOnFromWhereARunStands) {
  const std::vector<BatchRequest> whole = all_of(Cutter(kCut, kEpochs));
  const auto rest = [&](size_t from) {
    return std::vector<BatchRequest>(whole.begin() + static_cast<ptrdiff_t>(from), whole.end());
  };
  CutPosition at;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(all_of(Cutter(kCut, kEpochs, at)), rest(i));
    at.done += whole[i].count;
    if (whole[i].last_of_window) at = {at.epoch, at.window + 1, 0};
    if (at.window < kCut.windows) continue;
    // Only the validation of this epoch is left, so the next batch belongs to the next epoch.
    EXPECT_EQ(all_of(Cutter(kCut, kEpochs, at)), rest(i + 1));
    at = {at.epoch + 1, 0, 0};
  }
}

TEST(Cutter, CutsOneBatchAlone) {
  const std::vector<BatchRequest> expected = {{0, 0, 3, false}, {0, 3, 3, false}, {0, 6, 1, true}};
  EXPECT_EQ(all_of(Cutter::of_batch(7, 3)), expected);
}

// The reading thread and the training loop each have a cutter. If one of them is a window off, that is an error at
// once.
TEST(Cutter, ABatchThatIsNotTheOneAskedForIsAnError) {
  const OpenModel open = require(open_model(golden("cnn.keras"), {}));
  MemoryData data(open.model, 17, 5);
  for (const int64_t off : {0, 1}) {
    Cutter reading(kCut, kEpochs, {0, off, 0}), asking(kCut, kEpochs);
    const auto reader =
        require(Prefetcher::start(data.source(), [&] { return reading.next(); }, 0, kCut.batch.micro, {}));
    std::vector<float> x(static_cast<size_t>(4 * open.model.inputs()[0].sample.elements()));
    const Status status = read_cut(*reader, *asking.next(), {{x.data()}, {}, {}});
    EXPECT_EQ(status.has_value(), off == 0);
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
