// The part of a model that does not need shapes: layers and their connections, the objective, the optimizer, names. One
// architecture can become any number of shaped models (model.h) with the same weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/description.h"
#include "model/optimizer.h"

namespace plimsoll::engine {

class Model;
struct TextInput;

struct InputSpec {
  std::string name;
  bool known = false;                        // false: the file does not give its shape
  std::vector<std::optional<int64_t>> dims;  // dimensions of one sample; nullopt if the model says None
  DType dtype = DType::kFloat32;
  std::shared_ptr<const TextInput> text = nullptr;  // set if its numbers are made from strings (model/text/)
};

class Architecture {
 public:
  // Fails with one kUnsupported error that lists every unsupported feature of the file that can be found without
  // shapes.
  static Result<Architecture> read(const Description& description, const ModelOptions& options);

  const std::string& name() const { return name_; }
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // The mixed policy of the file's layers; float32 if no layer has one. Layers that are float32 beside mixed layers
  // stay float32 in every mixed precision.
  const Precision& policy() const { return policy_; }
  Architecture with_loss_scale() const;  // adds loss scaling to an optimizer that has none

  // Returns the model for inputs with these shapes, one per input, without the batch.
  Result<Model> with_inputs(const std::vector<Shape>& samples) const;

  const struct ArchitectureParts& parts() const { return *parts_; }  // private to model/

 private:
  friend class ArchitectureReader;
  std::string name_;
  std::vector<InputSpec> inputs_;
  std::vector<std::string> output_names_;
  Optimizer optimizer_;
  Precision policy_;
  std::shared_ptr<const ArchitectureParts> parts_;
};

bool agrees(const InputSpec& spec, const std::vector<int64_t>& sample);  // whether it agrees with the declared sizes
std::string shown_dims(const InputSpec& spec);                           // "None,None,3"

// Returns the shape of one sample for each input: the declared shape, in which None is replaced by --input-shape or the
// data's shape.
Result<std::vector<Shape>> input_shapes(const Architecture& architecture, const ModelOptions& options);

}  // namespace plimsoll::engine
