// A model with its plan and its session, as the commands put them together, for tests that look inside.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "api/builtin.h"
#include "api/job.h"
#include "backends/registry.h"
#include "execute/fit.h"
#include "execute/window.h"
#include "formats/npy/npy.h"
#include "formats/npz/npz.h"
#include "plimsoll/plimsoll.h"
#include "search/build.h"
#include "tests/support/forwarding_device.h"

namespace plimsoll::testing {

inline std::string golden(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/" + name;
}

// "cpu" where this build has it, and the reference: the host may look into their arenas, and they repeat themselves to
// the bit.
inline std::vector<std::string> host_devices() {
  if (backend_named("cpu").built) return {"cpu", "reference"};
  return {"reference"};
}
// And "gpu" where there is one.
inline std::vector<std::string> devices() {
  std::vector<std::string> list = host_devices();
  if (backend_named("gpu").available()) list.push_back("gpu");
  return list;
}
inline std::string fast_device() {
  return devices().front();
}

struct RunOptions {
  std::string device = fast_device();
  int threads = 2;
  int64_t batch = 32;
  std::optional<int64_t> micro;  // forces the cut; else the whole batch
  int recompute = 0;             // level: search/build.h
  double kept = 1;               // of what is alive: the rest waits in the host's memory
  int64_t partial_window = 0;
  int64_t evaluate_batch = 0, evaluate_samples = 0;
  bool sample_weights = false;
  bool per_micro_batch_norm = false;
  int prefetch = 0;
  std::optional<Precision> precision;  // absent: float32, and float64 on the reference
  bool memory_growth = false;
  bool alone = true;  // false: other sessions of this process hold memory too, which is no overhead of this one
  ModelOptions overrides;
  // Puts something of the test's own between the session and the device.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap;
};

inline std::unique_ptr<Backend> open_device(const std::string& device, int threads = 2, bool memory_growth = false) {
  JobOptions job;
  job.device = device;
  job.tf32 = false;  // its rounding is the user's choice, not an error to allow for
  job.precision = device == "reference" ? "float64" : "float32";
  job.threads = threads;
  job.memory_growth = memory_growth;
  return require(open_backend(job));
}

// A device as it is, with a link to memory of the host as if it had its own: what is planned for it runs anywhere.
class LinkedDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  double host_bytes_per_second() const override { return 1e9; }
};

// Must stay where it is: the session refers to the model.
class ModelRun {
 public:
  ModelRun(OpenModel model, const RunOptions& options)
      : open(std::move(model)),
        backend(open_device(options.device, options.threads, options.memory_growth)),
        linked(backend->device()) {
    if (options.wrap) backend = options.wrap(std::move(backend));
    request.model = &open.model;
    request.device = options.kept < 1 ? &linked : &backend->device();
    const Precision plain = options.device == "reference" ? DType::kFloat64 : DType::kFloat32;
    request.graph = {options.precision.value_or(plain), assumed_data_types(open.model, options.sample_weights)};
    request.data = data_demand(open.model, request.graph.data);
    request.batch = options.batch;
    request.partial_window = options.partial_window;
    request.evaluate_batch = options.evaluate_batch;
    request.evaluate_samples = options.evaluate_samples;
    request.per_micro_batch_norm = options.per_micro_batch_norm;
    const double kept[] = {options.kept};
    std::optional<Plan> built;
    require(build_plans(
        request, options.micro.value_or(options.batch), options.recompute, kept, [](double) { return true; },
        [&](Plan one) { built = std::move(one); }));
    if (!built) throw std::runtime_error("so little cannot be kept");
    Plan plan = std::move(*built);
    plan.prefetch = options.prefetch;
    // A driver loaded by tests before takes hundreds of megabytes of the host's memory.
    const bool beside_gpu = options.device != "gpu" && devices().back() == "gpu";
    session = require(Session::create(open.model, std::move(plan), *backend, request.graph,
                                      beside_gpu || !options.alone ? backend->held_bytes() : 0));
    if (open.archive && open.archive->weights)
      state = require(load_weights(*session, *open.archive, open.optimizer_from_file)).optimizer;
    else
      require(initialize_weights(*session, 7));
    if (!open.archive) state.learning_rate = open.model.optimizer().learning_rate;
  }
  ModelRun(const ModelRun&) = delete;
  ModelRun& operator=(const ModelRun&) = delete;

  const Plan& plan() const { return session->plan(); }

  // One optimizer step over `count` samples from `first` on; its loss.
  double step(const BatchSource& data, int64_t first, int64_t count) {
    auto& source = const_cast<BatchSource&>(data);
    require(session->begin(require(next_window(*session, state, count, 3))));
    for (int64_t done = 0; done < count;) {
      const int64_t piece = std::min(plan().batch.micro, count - done);
      require(session->accumulate(piece,
                                  [&](const BatchBuffers& into) { return source.read(0, first + done, piece, into); }));
      done += piece;
    }
    require(session->apply());
    ++state.iteration;
    return session->tally("loss");
  }

  std::vector<double> values(const std::string& name) const {
    const HostView persistent = require(session->look());
    const TensorView view = persistent[name];
    std::vector<double> list(static_cast<size_t>(view.elements()));
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = view.type.dtype == DType::kFloat64 ? view.as<double>()[i] : static_cast<double>(view.as<float>()[i]);
    return list;
  }

  OpenModel open;
  std::unique_ptr<Backend> backend;
  LinkedDevice linked;
  SearchRequest request;
  std::unique_ptr<Session> session;
  OptimizerState state;
};

inline std::unique_ptr<ModelRun> run_of(const std::string& model, const RunOptions& options) {
  return std::make_unique<ModelRun>(require(open_model(model, options.overrides)), options);
}
inline std::unique_ptr<ModelRun> run_of(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss,
                                        const RunOptions& options) {
  Description description;
  description.config = nlohmann::json::parse(model.config());
  description.compile_config = {{"optimizer", nlohmann::json::parse(optimizer.config)},
                                {"loss", nlohmann::json::parse(loss.config)}};
  return std::make_unique<ModelRun>(require(open_description(description, "", {})), options);
}

// An array of a file as doubles, whatever floating or integer type it has.
inline std::vector<double> read_array(const ArraySource& source) {
  std::vector<std::byte> raw(static_cast<size_t>(source.bytes()));
  require(require(File::open_read(source.path)).pread_exact(source.offset, raw));
  std::vector<double> list(raw.size() / static_cast<size_t>(size_of(source.dtype)));
  const auto take = [&]<typename T>(T) {
    for (size_t i = 0; i < list.size(); ++i) {
      T value;
      std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
      list[i] = static_cast<double>(value);
    }
  };
  if (source.dtype == DType::kFloat32)
    take(float{});
  else if (source.dtype == DType::kFloat64)
    take(double{});
  else if (source.dtype == DType::kInt32)
    take(int32_t{});
  else if (source.dtype == DType::kInt64)
    take(int64_t{});
  else
    throw std::runtime_error(source.label + ": unexpected dtype");
  return list;
}
inline std::vector<double> read_npz(const std::string& path, const std::string& name) {
  return read_array(require(open_npz(path, name)));
}

// The golden data of a model: NAME_x.npy, NAME_y.npy.
inline ColumnSource golden_data(const std::string& name, const Model& model, SourceOptions options = {}) {
  const std::string files = golden(name + "_x.npy") + "," + golden(name + "_y.npy");
  return require(ColumnSource::create(require(open_data(files, data_spec(model, true))), std::move(options)));
}

inline double largest(const std::vector<double>& list) {
  double most = 0;
  for (double v : list) most = std::max(most, std::abs(v));
  return most;
}

// The largest |got - want| as a share of the largest |want|.
inline double relative_difference(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    most = std::max(most, std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : INFINITY);
  const double scale = largest(want);
  return most == 0 ? 0 : scale == 0 ? INFINITY : most / scale;
}

// A folder of its own that goes away.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path().string() + "/plimsoll-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Files that are being written end in ".part" until they are whole.
inline void expect_no_half_files(const TemporaryFolder& folder, const std::string& what = "") {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << what << " leaves " << entry.path();
}

}  // namespace plimsoll::testing
