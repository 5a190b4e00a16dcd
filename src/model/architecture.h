// The part of a model that needs no shapes: layers and their connections, the objective, the optimizer, names. One
// architecture becomes any number of shaped models (model.h), which have the same weights.
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

struct InputSpec {
  std::string name;
  bool known = false;                        // false: nothing says its shape
  std::vector<std::optional<int64_t>> dims;  // of one sample; nullopt where the model says None
  DType dtype = DType::kFloat32;
};

class Architecture {
 public:
  // Everything the file asks for that we do not do, as far as it can be seen without shapes, is listed in one
  // kUnsupported error.
  static Result<Architecture> read(const Description& description, const ModelOptions& options);

  const std::string& name() const { return name_; }
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // The mixed policy that layers of the file have, or float32 where none has one. Layers in float32 beside mixed ones
  // stay so in any mixed precision.
  const Precision& policy() const { return policy_; }
  Architecture with_loss_scale() const;  // around an optimizer that has none

  // The model for inputs of these shapes, one per input and without the batch.
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

bool agrees(const InputSpec& spec, const std::vector<int64_t>& sample);  // with the declared sizes
std::string shown_dims(const InputSpec& spec);                           // "None,None,3"

// The shapes of one sample of each input: as declared, with --input-shape or the data's where the model says None.
Result<std::vector<Shape>> input_shapes(const Architecture& architecture, const ModelOptions& options);

}  // namespace plimsoll::engine
