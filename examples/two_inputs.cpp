// A functional model with two inputs and two outputs: a picture and some numbers give a price and a category.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  const int64_t samples = 256;
  const auto pictures = random_uniform({samples, 32, 32, 3}, 0), facts = random_uniform({samples, 8}, 1);
  const auto prices = random_uniform({samples, 1}, 2), kinds = random_integers(4, {samples}, 3);

  const Tensor picture = layers::Input({32, 32, 3}, {.name = "picture"});
  const Tensor numbers = layers::Input({8}, {.name = "facts"});
  Tensor x = layers::Conv2D(16, 3, {.activation = "relu"})(picture);
  x = layers::MaxPooling2D()(x);
  x = layers::Conv2D(32, 3, {.activation = "relu"})(x);
  x = layers::GlobalAveragePooling2D()(x);
  x = layers::Concatenate()({x, layers::Dense(16, {.activation = "relu"})(numbers)});
  const Tensor price = layers::Dense(1, {.name = "price"})(x);
  const Tensor kind = layers::Dense(4, {.activation = "softmax", .name = "kind"})(x);
  auto model = require(functional({picture, numbers}, {price, kind}));
  model = require(model.compile({.optimizer = "adam",
                                 .loss = {{"price", "mse"}, {"kind", losses::SparseCategoricalCrossentropy()}},
                                 .loss_weights = {{"price", 0.5}, {"kind", 1.0}}}));

  auto trained = require(Model::create(model, {.batch_size = 32, .budget = "1GiB"}));
  const Data data = Data::arrays({{"picture", pictures}, {"facts", facts}}, {{"price", prices}, {"kind", kinds}});
  for (const Logs& epoch : require(trained.fit(data, {.epochs = 3})).epochs)
    std::printf("loss %g (price %g, kind %g)\n", epoch.loss(), *epoch.find("price_loss"), *epoch.find("kind_loss"));

  const std::vector<Array> predicted = require(trained.predict(Data::arrays({pictures, facts})));
  std::printf("first price %g\n", static_cast<double>(require(predicted[0].values<float>())[0]));
  return trained.arena_peak_bytes() == trained.plan().arena_bytes ? 0 : 1;
}
