// Copies between the card and the host, on the queue that their node names. A copy is started on a stream of its own,
// after the work enqueued so far, and runs concurrently with the computation. The node that waits for a copy blocks the
// compute stream until the copy is complete. In a captured phase, copies become branches of the CUDA graph.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/launching.h"

namespace plimsoll::engine::cuda {

// Two events: the compute stream has reached the copy, and the copy is complete.
class CopyEnd {
 public:
  CopyEnd() = default;
  CopyEnd(const CopyEnd&) = delete;
  CopyEnd& operator=(const CopyEnd&) = delete;
  ~CopyEnd() {
    for (const cudaEvent_t event : {reached, over})
      if (event != nullptr) cudaEventDestroy(event);
  }
  Status open() {
    PLIMSOLL_CUDA(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming));
    PLIMSOLL_CUDA(cudaEventCreateWithFlags(&over, cudaEventDisableTiming));
    return {};
  }

  cudaEvent_t reached = nullptr, over = nullptr;
};

namespace {

cudaStream_t stream_of(const Context& context, Queue queue) {
  switch (queue) {
    case Queue::kToHost:
      return context.outgoing;
    case Queue::kFromHost:
      return context.copies;
    case Queue::kCompute:
      break;
  }
  return context.stream;
}

BoundKernel begin_copy(Context& context, const BoundNode& node, cudaStream_t along) {
  auto end = std::make_shared<CopyEnd>();
  PLIMSOLL_TRY(end->open());
  void* const to = output(node, 0);
  const void* const from = input(node, 0);
  const auto bytes = static_cast<size_t>(view_of(node).in(0).bytes());
  context.copy_ends[to] = end;
  return launching(context, node.node.op, [=, stream = context.stream] {
    cudaEventRecord(end->reached, stream);
    cudaStreamWaitEvent(along, end->reached, 0);
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, along);
    cudaEventRecord(end->over, along);
  });
}

}  // namespace

BoundKernel bind_host_copy(Context& context, const BoundNode& node) {
  if (node.node.queue != Queue::kCompute) return begin_copy(context, node, stream_of(context, node.node.queue));
  const auto found = context.copy_ends.find(input(node, 0));
  const std::shared_ptr<CopyEnd> end = found == context.copy_ends.end() ? nullptr : found->second;
  const auto bytes = static_cast<size_t>(view_of(node).in(0).bytes());
  return launching(context, node.node.op, [=, stream = context.stream, from = input(node, 0), to = output(node, 0)] {
    if (end != nullptr) cudaStreamWaitEvent(stream, end->over, 0);
    if (from != to)
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);  // unless output and input share memory
  });
}

}  // namespace plimsoll::engine::cuda
