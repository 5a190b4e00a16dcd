// What every command and the C++ interface do alike: open a model, choose a device, open data, search a plan, start a
// session.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "data/column_source.h"
#include "execute/weights.h"
#include "report/plan_report.h"
#include "search/search.h"

namespace plimsoll {

struct JobOptions {
  std::string model;  // a file or a built-in name
  ModelOptions overrides;
  int64_t batch_size = 32;
  bool automatic_batch = false;  // --batch-size auto: batch_size is not read
  int64_t accumulation_steps = 1;
  std::optional<int64_t> micro_batch;
  std::optional<Bytes> budget;       // absent: what is free, less a margin
  std::optional<Bytes> host_budget;  // beside a GPU: what values may wait in; absent: most of what is free
  std::string device = "auto";
  bool tf32 = true;  // float32 matrix work on a GPU may be rounded to tf32
  bool memory_growth = false;
  std::string precision;          // empty: as the model's layers have it
  bool policy_of_layers = false;  // what `precision` says comes from there
  bool per_micro_batch_norm = false;
  std::set<std::string> forbidden;
  int threads = 0;
};

// A model with what it came from.
struct OpenModel {
  std::string file;                     // as the user named it
  std::optional<KerasArchive> archive;  // none for a built-in model
  std::string config_text;              // written back with the weights
  Model model;
  bool optimizer_from_file = true;      // false: flags named another, and the file's state is not for it
  std::vector<std::string> notes = {};  // for the user: metrics that are skipped, an untested version of Keras
};

Result<OpenModel> open_model(const std::string& name, const ModelOptions& overrides);
// The job's model, and its precision where the job says none.
Result<OpenModel> open_model(JobOptions& job);
Result<OpenModel> open_description(const Description& description, const std::string& file,
                                   const ModelOptions& overrides);

// Whether memory of a GPU is taken as phases need it: as `asked`, unless TF_FORCE_GPU_ALLOW_GROWTH, whose value is
// `forced`, says otherwise. It says it as it does to TensorFlow: "true" and "false" win, anything else changes nothing.
struct MemoryGrowth {
  bool on = false;
  std::string note;  // for the user: what was asked for and is not done
};
MemoryGrowth choose_memory_growth(bool asked, const char* forced);
inline constexpr const char* kForceGrowth = "TF_FORCE_GPU_ALLOW_GROWTH";

// A device as TensorFlow, PyTorch or a user writes it, in our words: "/GPU:0", "/device:GPU:0" and "cuda:0" are
// "gpu:0", "CPU:0" is "cpu". What is none of these comes back in small letters.
std::string canonical_device(const std::string& device);
// N of gpu:N; 0 of every other device. P201 where N is not a number.
Result<int> gpu_ordinal(const std::string& device);

// "auto", "cpu", "gpu", "gpu:N" or the profile of a card, as canonical_device() reads them, or the file of a profile;
// the reference in float64.
Result<std::unique_ptr<Backend>> open_backend(const JobOptions& options);
Result<Precision> parse_precision(const std::string& precision);  // "" is float32
// "mixed_bfloat16" or "mixed_float16" on a GPU, whichever it has; "float32" on a CPU.
std::string automatic_precision(const JobOptions& options);

// A model's ports as the data stage wants them.
DataSpec data_spec(const Model& model, bool needs_targets);
DataTypes data_types(const DataSet& data, bool sample_weights);
DataTypes assumed_data_types(const Model& model, bool sample_weights);  // where there is no data to ask
// What data of these types take beside the arena. `reads_ahead`: the caller has a Prefetcher.
DataDemand data_demand(const Model& model, const DataTypes& types, bool reads_ahead = false);

// The budget and what of the machine's free memory it leaves.
struct Budget {
  Bytes bytes = 0;
  Bytes margin = 0;  // 0 where the user said how much
};
Budget choose_budget(const JobOptions& options, const DeviceInfo& device);

// A request with what all commands share filled in, the staged batch included: whoever reads ahead says so in its data.
SearchRequest base_request(const JobOptions& options, const Model& model, const Device& device,
                           const Precision& precision, const DataTypes& data, const Budget& budget);

}  // namespace plimsoll
