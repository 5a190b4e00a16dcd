#include "execute/cutter.h"

namespace plimsoll::engine {

Cutter::Cutter(const RunCut& cut, int64_t epochs, CutPosition from) : cut_(cut), epochs_(epochs), at_(from) {
  if (at_.window >= cut_.windows) at_ = {at_.epoch + 1, 0, 0};
}

std::optional<BatchRequest> Cutter::next() {
  if (at_.epoch >= epochs_ || cut_.windows == 0) return std::nullopt;
  const int64_t size = cut_.window_size(at_.window);
  BatchRequest request{at_.epoch, at_.window * cut_.batch.effective + at_.done,
                       std::min(cut_.batch.micro, size - at_.done)};
  at_.done += request.count;
  request.last_of_window = at_.done >= size;
  if (!request.last_of_window) return request;
  at_.done = 0;
  if (++at_.window == cut_.windows) at_ = {at_.epoch + 1, 0, 0};
  return request;
}

}  // namespace plimsoll::engine
