// Convolutions over few input channels by im2col + GEMM: writes the im2col rows x' of some images and multiplies them
// with cuBLASLt, one batch of images at a time. Forward: y = x' w'. Weight gradient: dw = dy^T x', split along the
// pixels into parts (split-K) that are stored in float32 and added up at the end.
#include "backends/cuda/convolution/im2col_launch.h"

#include "backends/cuda/convolution/bind_im2col.h"
#include "backends/cuda/convolution/bind_shapes.h"
#include "backends/cuda/convolution/im2col.h"
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/driver/launching.h"
#include "backends/cuda/matmul/bind_cublaslt.h"

namespace plimsoll::engine::cuda {
namespace {

class Im2col {
 public:
  Im2col(Context& context, const BoundNode& node, const Convolution& c)
      : context_(context),
        node_(node),
        c_(c),
        weight_grad_(c.pass == ConvolutionPass::kWeightGrad),
        plan_(plan_im2col(c, weight_grad_)),
        space_(static_cast<std::byte*>(workspace_of(node).data)),
        library_{space_ + plan_.library, workspace_of(node).bytes - plan_.library} {}

  BoundKernel bind() {
    assert(workspace_of(node_).bytes >= plan_.workspace);
    if (!weight_grad_) fill_up_weights();
    for (int64_t first = 0; first < c_.n; first += plan_.images) {
      const int64_t images = std::min(plan_.images, c_.n - first);
      gather(first, images);
      PLIMSOLL_ASSIGN(auto product, weight_grad_ ? weight_product(first, images) : forward_product(first, images));
      kernels_.push_back(std::move(product));
    }
    if (weight_grad_) sum_parts();
    return std::make_unique<Sequence>(std::move(kernels_));
  }

 private:
  template <typename F>
  void launch(F f) {
    kernels_.push_back(launching(context_, std::string(kIm2colKernel) + " " + node_.node.op, std::move(f)));
  }

  void fill_up_weights() {
    weights_ = node_.inputs[1];
    if (plan_.width == plan_.numbers) return;
    launch([=, from = weights_, last = plan_.one ? node_.inputs[2] : nullptr, to = space_ + plan_.weights, plan = plan_,
            o = c_.o, element = element_of(c_.dtype), stream = context_.stream] {
      launch_fill_up(o, plan.numbers, plan.width, element, from, last, to, stream);
    });
    weights_ = space_ + plan_.weights;
  }

  void gather(int64_t first, int64_t images) {
    const Im2colShape shape = im2col_shape(c_, plan_, images);
    const std::byte* x = input<const std::byte>(node_, 0) + first * c_.h * c_.w * c_.c * size_of(c_.dtype);
    launch([=, rows = space_ + plan_.rows, element = element_of(c_.dtype), stream = context_.stream] {
      launch_im2col(shape, element, x, rows, stream);
    });
  }

  BoundKernel forward_product(int64_t first, int64_t images) {
    const int64_t pixels = c_.oh * c_.ow;
    Product product;
    product.m = images * pixels, product.n = c_.o, product.k = plan_.width;
    product.tb = true, product.bias = c_.bias && !plan_.one, product.relu = c_.relu;
    product.dtype = product.result = c_.dtype;
    auto* y = output<std::byte>(node_, 0) + first * pixels * c_.o * size_of(c_.dtype);
    return bind_product(context_, product, {space_ + plan_.rows, weights_, product.bias ? node_.inputs[2] : nullptr, y},
                        library_);
  }

  // The first batch of images writes all parts. A shorter last batch may have fewer parts and adds to the first ones.
  BoundKernel weight_product(int64_t first, int64_t images) {
    const int64_t pixels = c_.oh * c_.ow;
    Product product;
    product.count = divisor_up_to(images * pixels, plan_.parts);
    product.m = c_.o, product.n = plan_.width, product.k = images * pixels / product.count;
    product.ta = true, product.adds = first > 0;
    product.dtype = c_.dtype, product.result = DType::kFloat32;
    const std::byte* dy = input<const std::byte>(node_, 1) + first * pixels * c_.o * size_of(c_.dtype);
    return bind_product(context_, product, {dy, space_ + plan_.rows, nullptr, space_ + plan_.weights}, library_);
  }

  void sum_parts() {
    launch([=, parts = reinterpret_cast<const float*>(space_ + plan_.weights), plan = plan_, o = c_.o,
            element = element_of(c_.dtype), dw = node_.outputs[0], db = c_.bias ? node_.outputs[1] : nullptr,
            stream = context_.stream] {
      launch_sum_parts(plan.parts, o, plan.numbers, plan.width, parts, element, dw, db, stream);
    });
  }

  Context& context_;
  const BoundNode& node_;
  const Convolution& c_;
  bool weight_grad_;
  Im2colPlan plan_;
  std::byte* space_;
  Workspace library_;
  const void* weights_ = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace

BoundKernel bind_im2col(Context& context, const BoundNode& node, const Convolution& c) {
  return Im2col(context, node, c).bind();
}

}  // namespace plimsoll::engine::cuda
