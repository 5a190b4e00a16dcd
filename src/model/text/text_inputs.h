// Takes the layers that read strings out of a model: each of their calls becomes an input of numbers, which are made
// where the data are read.
#pragma once

#include <string>
#include <vector>

#include "model/text/text_layer.h"

namespace plimsoll::engine {

// One call of a text layer on an input of the model.
struct TextInput {
  std::string source;      // the model's input, which holds strings
  OpenDims strings;        // the shape of its samples
  std::string layer;       // the layer's name
  std::string class_name;  // "TextVectorization"
  std::string port;        // the name of the input of numbers that replaces the call
  std::shared_ptr<const TextLayer> text;
};

struct ModelWithoutText {
  Json config;
  std::vector<TextInput> inputs;  // empty: the model has no input of strings, and `config` is unchanged
};

// `config` is that of a Sequential or Functional model. Layers that read strings in another way are listed in `issues`.
ModelWithoutText take_out_text(Json config, Issues& issues);

// Returns whether some input of the model, or of a model in it, holds strings.
bool has_text_inputs(const Json& config);

}  // namespace plimsoll::engine
