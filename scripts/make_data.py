#!/usr/bin/env python3
"""Writes random images and labels as .npy files, for the example models (seed-1 to seed-3).

    scripts/make_data.py FOLDER [--samples 256] [--size 128] [--channels 3] [--classes 10] [--seed 0]

writes FOLDER/x.npy (float32, samples x size x size x channels, multiples of 1/256 in [0, 1)) and FOLDER/y.npy (int64).
Does not use NumPy, because it must run on machines without it.
"""

import argparse
import array
import os
import random
import struct
import sys


def npy_header(descr, shape):
    """The header of version 1.0 of the format: magic, length, and a dict literal, padded so that the data start at a multiple of 64."""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (descr, ", ".join(map(str, shape)))
    padding = -(10 + len(text) + 1) % 64
    text += " " * padding + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


# Byte j of the little-endian float32 k/256, for each k. With these, one bytes.translate per column makes floats as fast as memcpy.
COLUMNS = [bytes(struct.pack("<f", k / 256)[j] for k in range(256)) for j in range(4)]


def random_floats(generator, count):
    levels = generator.randbytes(count)
    data = bytearray(4 * count)
    for j, column in enumerate(COLUMNS):
        data[j::4] = levels.translate(column)
    return data


def write_images(path, samples, sample_shape, generator):
    elements = 1
    for dimension in sample_shape:
        elements *= dimension
    with open(path, "wb") as file:
        file.write(npy_header("<f4", (samples, *sample_shape)))
        for _ in range(samples):
            file.write(random_floats(generator, elements))


def write_labels(path, samples, classes, generator):
    labels = array.array("q", (generator.randrange(classes) for _ in range(samples)))
    if sys.byteorder == "big":
        labels.byteswap()
    with open(path, "wb") as file:
        file.write(npy_header("<i8", (samples,)))
        file.write(labels.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    for name, default in (("samples", 256), ("size", 128), ("channels", 3), ("classes", 10), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    arguments = parser.parse_args()
    if min(arguments.samples, arguments.size, arguments.channels, arguments.classes) < 1:
        parser.error("samples, size, channels and classes must be at least 1")
    generator = random.Random(arguments.seed)
    os.makedirs(arguments.folder, exist_ok=True)
    sample_shape = (arguments.size, arguments.size, arguments.channels)
    write_images(os.path.join(arguments.folder, "x.npy"), arguments.samples, sample_shape, generator)
    write_labels(os.path.join(arguments.folder, "y.npy"), arguments.samples, arguments.classes, generator)


if __name__ == "__main__":
    main()
