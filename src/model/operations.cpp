// Finds an operation of keras.ops by its class name, and says why some are not supported.
#include <algorithm>
#include <vector>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

struct Refusal {
  std::string_view reason;
  std::vector<std::string_view> names;
};

constexpr std::string_view kCouples = "it joins the samples of a batch";
constexpr std::string_view kDataShape = "the shape of its result depends on the data";

const std::vector<Refusal> kRefusals = {
    Refusal{kCouples,
            {"Ravel", "Vdot", "Outer", "Diag", "Diagflat", "Kron", "AllClose", "Corrcoef", "Meshgrid", "Correlate",
             "Vander", "SegmentSum", "SegmentMax", "SegmentMin", "SegmentProd", "SegmentReduction", "Scatter",
             "ScatterUpdate", "PSNR"}},
    Refusal{"its result has no batch",
            {"Arange", "Full", "Linspace", "Geomspace", "Logspace", "Ndim", "Size", "Eye", "Identity"}},
    Refusal{"it samples images at computed positions",
            {"AffineTransform", "ElasticTransform", "PerspectiveTransform", "MapCoordinates", "ScaleAndTranslate"}},
    Refusal{"only the loss CTC computes it", {"CTCLoss"}},
    Refusal{kDataShape, {"Nonzero", "Unique", "Bincount", "Histogram", "CTCDecode"}},
    Refusal{"it computes with complex numbers", {"Polar", "ViewAsComplex", "ViewAsReal", "Angle", "Imag", "Isreal"}},
    Refusal{"it computes with the bits of integers",
            {"BitwiseAnd", "BitwiseInvert", "BitwiseNot", "BitwiseOr", "BitwiseXor", "BitwiseLeftShift", "LeftShift",
             "BitwiseRightShift", "RightShift", "Gcd", "Lcm", "View", "Nextafter"}},
    Refusal{"it factorises or inverts matrices",
            {"Cholesky", "CholeskyInverse", "Det", "Eig", "Eigh", "Inv", "LuFactor", "Qr", "Solve", "SolveTriangular",
             "SVD", "Lstsq", "MatrixRank", "Pinv", "Slogdet", "Logdet"}},
    Refusal{"it runs a Python function",
            {"Map", "Scan", "AssociativeScan", "Switch", "WhileLoop", "ForiLoop", "Cond", "VectorizedMap", "JVP"}},
};

}  // namespace

std::string_view refusal_of(std::string_view class_name) {
  for (const Refusal& refusal : kRefusals)
    if (std::find(refusal.names.begin(), refusal.names.end(), class_name) != refusal.names.end()) return refusal.reason;
  return "";
}

std::function<Layer(Config&)> find_operation(std::string_view class_name) {
  if (auto parse = find_elementwise(class_name))
    return [parse = std::move(parse)](Config& c) { return operation_layer(c, parse); };
  for (const auto& table : {selection_operations(), activation_operations(), reduction_operations(),
                            statistics_operations(), shape_operations(), joining_operations(), indexing_operations(),
                            linear_operations(), network_operations(), window_operations(), sequence_operations(),
                            image_operations(), fourier_operations(), loss_operations(), rearranging_operations()})
    for (const OpClass& entry : table)
      if (entry.name == class_name) return [parse = entry.parse](Config& c) { return operation_layer(c, parse); };
  return nullptr;
}

}  // namespace plimsoll::engine
