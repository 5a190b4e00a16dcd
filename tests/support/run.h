// A model with its plan and its session, set up as the commands do it, for tests that look inside.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "api/builtin.h"
#include "api/described.h"
#include "api/run.h"
#include "backends/registry.h"
#include "device/forwarding_device.h"
#include "device/process_memory.h"
#include "execute/window.h"
#include "formats/npy/npy.h"
#include "formats/npz/npz.h"
#include "plimsoll/plimsoll.h"
#include "tests/support/forwarding_backend.h"

namespace plimsoll::engine::testing {

inline std::string golden(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/" + name;
}

// Returns "cpu" if this build has it, and "reference". Their arenas are host-visible, and their results are
// reproducible bit for bit.
inline std::vector<std::string> host_devices() {
  if (backend_named("cpu").built) return {"cpu", "reference"};
  return {"reference"};
}
// Returns the same, and "gpu" if there is one.
inline std::vector<std::string> devices() {
  std::vector<std::string> list = host_devices();
  if (backend_named("gpu").available()) list.push_back("gpu");
  return list;
}
inline std::string fast_device() {
  return devices().front();
}

// Returns the persistent values of the optimizer's state, in the order of Keras's file.
inline std::vector<std::string> state_values(const Model& model) {
  std::vector<NamedShape> weights;
  for (const Weight& weight : model.weights())
    if (weight.trainable) weights.push_back({weight.name, weight.shape});
  std::vector<std::string> values;
  for (const StateVariable& one : state_variables(model.optimizer(), weights))
    if (!one.value.empty()) values.push_back(one.value);
  return values;
}

// The options of a run in tests: lever settings are forced unless a test resets `forced`, and the budget is unlimited.
struct RunOptions : plimsoll::engine::RunOptions {
  RunOptions() {
    device = fast_device();
    threads = 2;
    tf32 = false;  // tests compare with float32 results, so they must not round to tf32
    batch_size = 32;
    budget = 0;
    seed = 7;
    forced.emplace();
  }
  bool alone = true;  // false: other sessions of this process also hold memory, which is not overhead of this one

  void validates(int64_t batch, int64_t samples = 0) {
    data.validates = true;
    data.validation_batch = batch;
    data.validation_samples = samples;
  }
  // Unless the test chooses a precision: float64 on the reference device, else float32.
  plimsoll::engine::RunOptions complete() const {
    plimsoll::engine::RunOptions options = *this;
    if (options.precision.empty()) options.precision = device == "reference" ? "float64" : "float32";
    // A GPU driver loaded by earlier tests takes hundreds of megabytes of host memory.
    const bool beside_gpu = device != "gpu" && devices().back() == "gpu";
    if (beside_gpu || !alone) options.resident_before = resident_bytes();
    return options;
  }
};

inline std::unique_ptr<Backend> open_device(const std::string& device) {
  RunOptions options;
  options.device = device;
  return require(open_backend(options.complete()));
}

// A backend that pretends to have its own memory and a link to the host, so that plans with offload run on any machine.
class LinkedBackend final : public ForwardingBackend {
 public:
  explicit LinkedBackend(std::unique_ptr<Backend> backend)
      : ForwardingBackend(std::move(backend)), device_(ForwardingBackend::device()) {}

  const Device& device() const override { return device_; }

 private:
  class LinkedDevice final : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    double host_bytes_per_second() const override { return 1e9; }
  };
  LinkedDevice device_;
};

// A run that throws on errors and gives access to its parts.
class ModelRun {
 public:
  ModelRun(OpenModel model, const RunOptions& options) : whole(start(std::move(model), options)) {}

  const Plan& plan() const { return session->plan(); }

  // Runs one optimizer step over `count` samples, starting at `first`. Returns its loss.
  double step(const BatchSource& data, int64_t first, int64_t count) {
    auto& source = const_cast<BatchSource&>(data);
    require(whole->step(count, [&](const BatchRequest& piece, const BatchBuffers& into) {
      return source.read(0, first + piece.first, piece.count, into);
    }));
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

  void end_session() {
    whole->end_session();
    session = nullptr;
  }
  Status bind_again() {
    PLIMSOLL_TRY(whole->bind());
    session = &whole->session();
    return {};
  }

  std::unique_ptr<Run> whole;
  const OpenModel& open = whole->opened();
  const Backend* backend = &whole->backend();
  const SearchRequest& request = whole->request();
  Session* session = &whole->session();
  OptimizerState& state = whole->optimizer();

 private:
  static std::unique_ptr<Run> start(OpenModel model, const RunOptions& options) {
    plimsoll::engine::RunOptions complete = options.complete();
    if (options.forced && options.forced->kept < 1 && !options.wrap_backend)
      complete.wrap_backend = [](std::unique_ptr<Backend> backend) {
        return std::make_unique<LinkedBackend>(std::move(backend));
      };
    auto run = require(Run::open(std::move(model), std::move(complete)));
    require(run->plan());
    require(run->start());
    return run;
  }
};

inline std::unique_ptr<ModelRun> run_of(const std::string& model, const RunOptions& options) {
  return std::make_unique<ModelRun>(require(open_model(model, options.overrides)), options);
}
inline std::unique_ptr<ModelRun> run_of(const plimsoll::Description& model, const plimsoll::Optimizer& optimizer,
                                        const plimsoll::Loss& loss, const RunOptions& options) {
  const auto compiled = require(model.compile({.optimizer = optimizer, .loss = loss}));
  return std::make_unique<ModelRun>(require(open_description(described(compiled).description, "", {})), options);
}

// Returns an array of a file as doubles. It may have any floating or integer type.
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

// Returns the largest |got - want| divided by the largest |want|.
inline double relative_difference(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    most = std::max(most, std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : INFINITY);
  const double scale = largest(want);
  return most == 0 ? 0 : scale == 0 ? INFINITY : most / scale;
}

// A new folder that the destructor removes.
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

// The names of files that are being written end in ".part" until they are complete.
inline void expect_no_half_files(const TemporaryFolder& folder, const std::string& what = "") {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << what << " leaves " << entry.path();
}

}  // namespace plimsoll::engine::testing
