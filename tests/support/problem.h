// A model with a request to plan it, for tests of the search.
#pragma once

#include "backends/cuda/cuda.h"
#include "tests/support/run.h"

namespace plimsoll::testing {

struct Problem {
  OpenModel open;
  std::unique_ptr<Backend> backend;
  SearchRequest request;

  Problem(const std::string& model, int64_t batch, const std::string& device = fast_device())
      : Problem(require(open_model(model, {})), batch, device) {}
  Problem(OpenModel model, int64_t batch, const std::string& device = fast_device())
      : open(std::move(model)), backend(open_device(device)) {
    request.model = &open.model;
    request.device = &backend->device();
    request.graph = {device == "reference" ? DType::kFloat64 : DType::kFloat32, assumed_data_types(open.model, false)};
    request.batch = batch;
    request.data = data_demand(open.model, request.graph.data, true);
  }

  // For a card that is not here, in float32.
  void plan_for(const std::string& card) {
    backend = make_planned_gpu(require(cuda::card_from_profile(card)));
    request.device = &backend->device();
    request.graph.precision = DType::kFloat32;
  }
};

}  // namespace plimsoll::testing
