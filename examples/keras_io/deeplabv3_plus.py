"""After keras.io/examples/vision/deeplabv3_plus: segmentation on ResNet50, with dilated convolutions."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
IMAGE_SIZE, NUM_CLASSES = 64, 20


def convolution_block(block_input, num_filters=32, kernel_size=3, dilation_rate=1, use_bias=False):
    x = layers.Conv2D(num_filters, kernel_size=kernel_size, dilation_rate=dilation_rate, padding="same", use_bias=use_bias,
                      kernel_initializer=keras.initializers.HeNormal())(block_input)
    x = layers.BatchNormalization()(x)
    return keras.ops.nn.relu(x)


def dilated_spatial_pyramid_pooling(dspp_input):
    dims = dspp_input.shape
    x = layers.AveragePooling2D(pool_size=(dims[-3], dims[-2]))(dspp_input)
    x = convolution_block(x, kernel_size=1, use_bias=True)
    out_pool = layers.UpSampling2D(size=(dims[-3] // x.shape[1], dims[-2] // x.shape[2]), interpolation="bilinear")(x)
    rates = [convolution_block(dspp_input, kernel_size=1 if rate == 1 else 3, dilation_rate=rate) for rate in (1, 6, 12, 18)]
    x = layers.Concatenate(axis=-1)([out_pool, *rates])
    return convolution_block(x, kernel_size=1)


model_input = keras.Input(shape=(IMAGE_SIZE, IMAGE_SIZE, 3))
preprocessed = keras.applications.resnet50.preprocess_input(model_input)
resnet50 = keras.applications.ResNet50(weights=None, include_top=False, input_tensor=preprocessed)
x = resnet50.get_layer("conv4_block6_2_relu").output
x = dilated_spatial_pyramid_pooling(x)
input_a = layers.UpSampling2D(size=(IMAGE_SIZE // 4 // x.shape[1], IMAGE_SIZE // 4 // x.shape[2]), interpolation="bilinear")(x)
input_b = convolution_block(resnet50.get_layer("conv2_block3_2_relu").output, num_filters=16, kernel_size=1)
x = layers.Concatenate(axis=-1)([input_a, input_b])
x = convolution_block(convolution_block(x))
x = layers.UpSampling2D(size=(IMAGE_SIZE // x.shape[1], IMAGE_SIZE // x.shape[2]), interpolation="bilinear")(x)
model = keras.Model(inputs=model_input, outputs=layers.Conv2D(NUM_CLASSES, kernel_size=(1, 1), padding="same")(x))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=["accuracy"])
images = (rng.random((8, IMAGE_SIZE, IMAGE_SIZE, 3)) * 255).astype("float32")
model.fit(images, rng.integers(0, NUM_CLASSES, (8, IMAGE_SIZE, IMAGE_SIZE, 1)), batch_size=4, epochs=1, shuffle=False, verbose=2)
