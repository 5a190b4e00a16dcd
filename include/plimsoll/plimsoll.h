/// @file
/// Plimsoll's C++ interface, version 1: describe a model in Keras's words, plan it for a byte budget, and train it
/// inside that budget.
///
/// @code
/// #include <plimsoll/plimsoll.h>
/// using namespace plimsoll;
///
/// auto model = require(sequential({layers::Input({28, 28, 1}),
///                                  layers::Conv2D(32, 3, {.activation = "relu"}),
///                                  layers::Flatten(),
///                                  layers::Dense(10, {.activation = "softmax"})}));
/// model = require(model.compile({.optimizer = optimizers::Adam(),
///                                .loss = losses::SparseCategoricalCrossentropy(),
///                                .metrics = {"accuracy"}}));
/// auto trained = require(Model::create(model, {.batch_size = 128, .budget = "256MiB"}));
/// require(trained.fit(Data::arrays(x, y), {.epochs = 3, .validation_split = 0.1}));
/// require(trained.save("trained.keras"));
/// @endcode
/// All errors are returned in a Result, and their messages name the options of this interface. Only require() throws;
/// it turns an error into an exception. No function ends the process.
#pragma once

#include "plimsoll/array.h"             // IWYU pragma: export
#include "plimsoll/callback.h"          // IWYU pragma: export
#include "plimsoll/data.h"              // IWYU pragma: export
#include "plimsoll/description.h"       // IWYU pragma: export
#include "plimsoll/error.h"             // IWYU pragma: export
#include "plimsoll/layers.h"            // IWYU pragma: export
#include "plimsoll/losses.h"            // IWYU pragma: export
#include "plimsoll/model.h"             // IWYU pragma: export
#include "plimsoll/optimizers.h"        // IWYU pragma: export
#include "plimsoll/options.h"           // IWYU pragma: export
#include "plimsoll/plan.h"              // IWYU pragma: export
#include "plimsoll/recurrent_layers.h"  // IWYU pragma: export
#include "plimsoll/version.h"           // IWYU pragma: export
