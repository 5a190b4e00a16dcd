// A model and a search request for it, for tests of search.
#pragma once

#include "backends/cuda/cuda.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {

struct Problem {
  OpenModel open;
  std::unique_ptr<Backend> backend;
  SearchRequest request;

  Problem(const std::string& model, int64_t batch, const std::string& device = fast_device())
      : Problem(require(open_model(model, {})), batch, device) {}
  Problem(OpenModel model, int64_t batch, const std::string& device = fast_device())
      : open(std::move(model)), backend(open_device(device)) {
    RunOptions options;
    options.device = device;
    options.batch_size = batch;
    options.find_least = true;
    DataOutline data;
    data.types = assumed_data_types(open.model, false);
    data.reads_ahead = true;
    request = require(make_request(options.complete(), open.model, *backend, data, {}));
  }

  // Plans for a GPU profile, in float32.
  void plan_for(const std::string& card) {
    backend = make_planned_gpu(require(cuda::card_from_profile(card)));
    request.device = &backend->device();
    request.graph.precision = DType::kFloat32;
  }
};

}  // namespace plimsoll::engine::testing
