// The Python module plimsoll._core: the C++ interface of include/plimsoll, and nothing else. The package's Python code
// is its only caller. The interpreter's lock is released during every call that computes or plans.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <plimsoll/plimsoll.h>

#include <memory>

namespace nb = nanobind;
using namespace plimsoll;

namespace {

// Carries an Error to Python, where plimsoll.errors makes the exception.
struct Failure {
  Error error;
};

template <typename T>
T take(Result<T> result) {
  if (!result) throw Failure{std::move(result).error()};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void to_python(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    const Error& error = failure.error;
    nb::object made = nb::module_::import_("plimsoll.errors")
                          .attr("from_core")(static_cast<int>(error.code), error.what, error.facts, error.remedies);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

using NumpyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using NamedArrays = std::vector<std::pair<std::string, NumpyArray>>;

std::string dtype_name(const nb::dlpack::dtype& dtype) {
  const std::string bits = std::to_string(dtype.bits);
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Float:
      return "float" + bits;
    case nb::dlpack::dtype_code::Int:
      return "int" + bits;
    case nb::dlpack::dtype_code::UInt:
      return "uint" + bits;
    case nb::dlpack::dtype_code::Bool:
      return "bool";
    default:
      return "an unknown dtype";
  }
}

// Views of NumPy's memory, with the text of their dtypes.
class Views {
 public:
  explicit Views(const NamedArrays& arrays) {
    for (const auto& [name, array] : arrays) dtypes_.push_back(dtype_name(array.dtype()));
    for (size_t i = 0; i < arrays.size(); ++i) {
      const auto& [name, array] = arrays[i];
      Dims shape(array.ndim());
      for (size_t d = 0; d < shape.size(); ++d) shape[d] = static_cast<int64_t>(array.shape(d));
      list_.emplace_back(name,
                         ArrayView(array.data(), static_cast<int64_t>(array.size()), dtypes_[i], std::move(shape)));
    }
  }
  Arrays arrays() const { return Arrays(list_); }

 private:
  std::vector<std::string> dtypes_;
  std::vector<NamedArray> list_;
};

// A NumPy array that owns the elements of `array`.
nb::object to_numpy(Array array) {
  auto* kept = new Array(std::move(array));
  const nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<Array*>(pointer); });
  std::vector<size_t> shape(kept->shape().begin(), kept->shape().end());
  const nb::object bytes =
      nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(kept->bytes().data(), {kept->bytes().size()}, owner));
  return bytes.attr("view")(nb::module_::import_("plimsoll.arrays").attr("dtype_of")(kept->dtype()))
      .attr("reshape")(nb::cast(shape));
}

nb::dict to_dict(const Logs& logs) {
  nb::dict dict;
  for (const MetricValue& metric : logs.metrics()) dict[nb::cast(metric.name)] = metric.value;
  return dict;
}

nb::list to_list(const std::vector<WeightInfo>& weights) {
  nb::list list;
  for (const WeightInfo& weight : weights)
    list.append(nb::make_tuple(weight.name, nb::tuple(nb::cast(weight.shape)), weight.dtype));
  return list;
}

// Options and the notes that arrive while they are used. Keys that are not options are an error of this package.
class Settings {
 public:
  explicit Settings(const nb::dict& dict) {
    options.on_note = [this](const std::string& note) { notes.push_back(note); };
    for (const auto& [key, value] : dict) read(nb::cast<std::string>(key), value);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  Options options;
  std::vector<std::string> notes;

 private:
  template <typename T>
  static bool set(T& option, nb::handle value) {
    option = nb::cast<T>(value);
    return true;
  }

  void read(const std::string& key, nb::handle value) {
    Options& o = options;
    const bool known = key == "batch_size"                    ? set(o.batch_size, value)
                       : key == "gradient_accumulation_steps" ? set(o.gradient_accumulation_steps, value)
                       : key == "micro_batch"                 ? set(o.micro_batch, value)
                       : key == "budget"                      ? set(o.budget, value)
                       : key == "host_budget"                 ? set(o.host_budget, value)
                       : key == "device"                      ? set(o.device, value)
                       : key == "precision"                   ? set(o.precision, value)
                       : key == "float32_layers"              ? set(o.float32_layers, value)
                       : key == "forbid"                      ? set(o.forbid, value)
                       : key == "allow"                       ? set(o.allow, value)
                       : key == "batchnorm"                   ? set(o.batchnorm, value)
                       : key == "memory_growth"               ? set(o.memory_growth, value)
                       : key == "tf32"                        ? set(o.tf32, value)
                       : key == "input_shape"                 ? set(o.input_shape, value)
                       : key == "sample_weights"              ? set(o.sample_weights, value)
                       : key == "trains"                      ? set(o.trains, value)
                       : key == "inference_batch_size"        ? set(o.inference_batch_size, value)
                       : key == "samples"                     ? set(o.samples, value)
                       : key == "validation_samples"          ? set(o.validation_samples, value)
                       : key == "reserved_bytes"              ? set(o.reserved_bytes, value)
                       : key == "refuse_divergence"           ? set(o.refuse_divergence, value)
                       : key == "threads"                     ? set(o.threads, value)
                       : key == "seed"                        ? set(o.seed, value)
                                                              : false;
    if (!known) throw nb::key_error(("no option " + key).c_str());
  }
};

nb::dict to_dict(const Plan& plan, const std::vector<std::string>& notes) {
  nb::dict dict;
  dict["text"] = plan.text;
  dict["json"] = plan.json;
  dict["fits"] = plan.fits;
  dict["remedies"] = plan.remedies;
  dict["notes"] = notes;
  return dict;
}

nb::dict plan_model(const std::string& architecture, const std::string& compiled, const nb::dict& options) {
  Settings settings(options);
  Plan made = [&] {
    const nb::gil_scoped_release unlocked;
    return take(plan(take(Description::from_json(architecture, compiled)), settings.options));
  }();
  return to_dict(made, settings.notes);
}

class Engine {
 public:
  Engine(const std::string& architecture, const std::string& compiled, const nb::dict& options) : settings_(options) {
    const nb::gil_scoped_release unlocked;
    model_ = std::make_unique<Model>(
        take(Model::create(take(Description::from_json(architecture, compiled)), settings_.options)));
  }

  nb::dict step(const NamedArrays& x, const NamedArrays& y, const NamedArrays& weights) {
    return run(x, y, weights, [&](const Batch& batch) { return model_->step(batch); });
  }
  nb::dict test(const NamedArrays& x, const NamedArrays& y, const NamedArrays& weights) {
    return run(x, y, weights, [&](const Batch& batch) { return model_->test(batch); });
  }
  nb::list predict(const NamedArrays& x) {
    const Views inputs(x);
    std::vector<Array> made = [&] {
      const nb::gil_scoped_release unlocked;
      return take(model_->predict(Data::arrays(inputs.arrays())));
    }();
    nb::list list;
    for (Array& array : made) list.append(to_numpy(std::move(array)));
    return list;
  }
  nb::dict metrics() const { return to_dict(take(model_->metrics())); }
  void reset_metrics() { take(model_->reset_metrics()); }

  nb::list weights() const { return to_list(model_->weights()); }
  nb::list optimizer_variables() const { return to_list(model_->optimizer_variables()); }
  nb::object weight(const std::string& name) const { return to_numpy(take(model_->weight(name))); }
  nb::object optimizer_variable(const std::string& name) const {
    return to_numpy(take(model_->optimizer_variable(name)));
  }
  void set_weight(const std::string& name, const NumpyArray& array) {
    const Views view({{name, array}});
    take(model_->set_weight(name, view.arrays().list()[0].array));
  }
  void set_optimizer_variable(const std::string& name, const NumpyArray& array) {
    const Views view({{name, array}});
    take(model_->set_optimizer_variable(name, view.arrays().list()[0].array));
  }
  double learning_rate() const { return take(model_->learning_rate()); }
  void set_learning_rate(double rate) { take(model_->set_learning_rate(rate)); }
  int64_t iterations() const { return model_->iterations(); }
  void set_iterations(int64_t iterations) { take(model_->set_iterations(iterations)); }

  std::vector<std::string> input_names() const { return model_->input_names(); }
  std::vector<std::string> output_names() const { return model_->output_names(); }
  nb::dict plan() const { return to_dict(model_->plan(), settings_.notes); }
  int64_t arena_peak_bytes() const { return model_->arena_peak_bytes(); }

 private:
  template <typename Call>
  nb::dict run(const NamedArrays& x, const NamedArrays& y, const NamedArrays& weights, const Call& call) {
    const Views inputs(x), targets(y), factors(weights);
    const Logs logs = [&] {
      const nb::gil_scoped_release unlocked;
      return take(call(Batch{inputs.arrays(), targets.arrays(), factors.arrays()}));
    }();
    return to_dict(logs);
  }

  Settings settings_;
  std::unique_ptr<Model> model_;
};

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(to_python);
  module.attr("version") = PLIMSOLL_VERSION;
  module.def("plan", plan_model, nb::arg("architecture"), nb::arg("compiled"), nb::arg("options"));
  nb::class_<Engine>(module, "Engine")
      .def(nb::init<const std::string&, const std::string&, const nb::dict&>(), nb::arg("architecture"),
           nb::arg("compiled"), nb::arg("options"))
      .def("step", &Engine::step)
      .def("test", &Engine::test)
      .def("predict", &Engine::predict)
      .def("metrics", &Engine::metrics)
      .def("reset_metrics", &Engine::reset_metrics)
      .def("weights", &Engine::weights)
      .def("optimizer_variables", &Engine::optimizer_variables)
      .def("weight", &Engine::weight)
      .def("optimizer_variable", &Engine::optimizer_variable)
      .def("set_weight", &Engine::set_weight)
      .def("set_optimizer_variable", &Engine::set_optimizer_variable)
      .def("learning_rate", &Engine::learning_rate)
      .def("set_learning_rate", &Engine::set_learning_rate)
      .def("iterations", &Engine::iterations)
      .def("set_iterations", &Engine::set_iterations)
      .def("input_names", &Engine::input_names)
      .def("output_names", &Engine::output_names)
      .def("plan", &Engine::plan)
      .def("arena_peak_bytes", &Engine::arena_peak_bytes);
}
