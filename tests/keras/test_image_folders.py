"""Folders of pictures: the same order, labels and pixels as keras.utils.image_dataset_from_directory."""

import io
import struct
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import program

L = keras.layers
# Bilinear interpolation of numbers up to 255: the difference is one of rounding.
PIXEL = 1e-4


def smooth(rng, height, width, channels):
    """A picture with some structure: noise alone has no neighbours that agree."""
    grid = rng.random((max(height // 8, 1) + 1, max(width // 8, 1) + 1, channels)).astype(np.float32)
    return np.clip(tf.image.resize(grid, (height, width)).numpy() * 255, 0, 255).astype(np.uint8)


def interlaced_png(pixels):
    """Adam7, which no encoder here writes. Every row has filter 0."""
    height, width, _ = pixels.shape
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for row in pixels[y0::dy, x0::dx]:
            if row.size:
                rows += b"\0" + row.tobytes()
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def with_pillow(pixels, mode, kind, **named):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **named)
    return file.getvalue()


def gif(pixels, others=(), **named):
    frames = [Image.fromarray(p).convert("P", palette=Image.Palette.ADAPTIVE) for p in (pixels, *others)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], optimize=False, **named)
    return file.getvalue()


def interlaced_gif(pixels):
    """Pillow writes no interlaced GIF, so the flag is set in one, and its rows are put into the file's order."""
    rows = [y for begin, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(begin, len(pixels), step)]
    data = bytearray(gif(pixels[rows]))
    place = data.index(b",\0\0\0\0")
    data[place + 9] |= 0x40
    return bytes(data)


def top_down_bmp(pixels):
    data = bytearray(with_pillow(pixels, "RGB", "BMP"))
    data[22:26] = struct.pack("<i", -len(pixels))
    return bytes(data)


def of_bmp_and_gif(rng):
    color = smooth(rng, 37, 51, 3)
    return {
        "rgb.bmp": with_pillow(color, "RGB", "BMP"),
        "down.BMP": top_down_bmp(color),
        "photo.gif": gif(color),
        "clear.gif": gif(color, transparency=7),
        "moving.gif": gif(color, [smooth(rng, 37, 51, 3)], duration=50),
        "lines.gif": interlaced_gif(color),
        "two.gif": gif(np.zeros((5, 3, 3), np.uint8)),
        "noise.gif": gif(rng.integers(0, 256, (90, 120, 3), np.uint8)),
    }


def pictures(rng):
    """Name of the file -> its bytes, for every kind of picture."""
    color, gray = smooth(rng, 37, 51, 3), smooth(rng, 40, 30, 1)
    jpeg = lambda x, **named: tf.io.encode_jpeg(x, **named).numpy()
    png = lambda x: tf.io.encode_png(x).numpy()
    orientation = Image.Exif()
    orientation[0x112] = 6
    return {
        "420.jpg": jpeg(color, quality=90),
        "444.JPEG": jpeg(color, quality=75, chroma_downsampling=False),
        "gray.jpg": jpeg(gray),
        "progressive.jpg": jpeg(smooth(rng, 50, 64, 3), progressive=True),
        "422.jpg": with_pillow(color, "RGB", "JPEG", subsampling=1),
        "cmyk.jpg": with_pillow(color, "CMYK", "JPEG"),
        "turned.jpg": with_pillow(color, "RGB", "JPEG", exif=orientation),
        "tiny.jpg": jpeg(smooth(rng, 1, 1, 3)),
        "large.jpg": jpeg(smooth(rng, 301, 257, 3)),
        "rgb.png": png(color),
        "gray.png": png(gray),
        "alpha.png": png(smooth(rng, 20, 33, 4)),
        "gray_alpha.png": png(smooth(rng, 20, 33, 2)),
        "16_bit.png": png(smooth(rng, 25, 21, 3).astype(np.uint16) * 257 + 100),
        "16_bit_gray.png": png(smooth(rng, 25, 21, 1).astype(np.uint16) * 200),
        "palette.png": with_pillow(color, "P", "PNG"),
        "palette_clear.png": with_pillow(color, "P", "PNG", transparency=3),
        "bits.png": with_pillow(color, "1", "PNG"),
        "interlaced.PNG": interlaced_png(color),
        **of_bmp_and_gif(rng),
    }


def fill(folder, rng, classes=("b class", "a", "c")):
    for one in classes:
        (folder / one).mkdir(parents=True)
        for name, data in pictures(rng).items():
            (folder / one / name).write_bytes(data)
    (folder / "a" / "deeper").mkdir()
    (folder / "a" / "deeper" / "0.png").write_bytes(tf.io.encode_png(smooth(rng, 9, 9, 3)).numpy())
    (folder / "a" / "notes.txt").write_text("not a picture")
    (folder / ".hidden").mkdir()
    (folder / "beside.png").write_bytes(b"not in a class folder")
    return folder


def dataset(folder, size, **named):
    found = keras.utils.image_dataset_from_directory(
        folder, image_size=size, batch_size=None, verbose=False, **{"shuffle": False, **named}
    )
    rows = [one if isinstance(one, tuple) else (one, 0) for one in found]
    return np.stack([np.array(x) for x, _ in rows]), np.stack([np.array(y) for _, y in rows])


def identity(folder, shape):
    model = keras.Sequential([keras.Input(shape), L.Activation("linear")])
    model.compile("sgd", "mse")
    model.save(folder / "identity.keras")
    return folder / "identity.keras"


@pytest.mark.parametrize(
    "size, mode", [((32, 48), "rgb"), ((37, 51), "rgb"), ((100, 80), "rgb"), ((24, 24), "grayscale")], ids=str
)
def test_pixels_and_order(size, mode, tmp_path, rng):
    folder = fill(tmp_path / "data", rng)
    if mode == "grayscale":
        for path in folder.glob("*/*"):  # TensorFlow has no grey for these
            if path.name == "cmyk.jpg" or path.suffix in (".gif", ".bmp", ".BMP"):
                path.unlink()
    want, _ = dataset(folder, size, color_mode=mode)
    got = program.predict(tmp_path, identity(tmp_path, want.shape[1:]), folder, batch_size=7)
    assert got.shape == want.shape
    worst = np.abs(got - want).reshape(len(got), -1).max(-1)
    names = [p for one in sorted(("a", "b class", "c")) for p in sorted((folder / one).glob("*.*"))]
    assert worst.max() <= PIXEL, {str(n): float(w) for n, w in zip(names, worst) if w > PIXEL}


def test_four_channels(tmp_path, rng):
    folder = tmp_path / "data"
    (folder / "only").mkdir(parents=True)
    for name, data in pictures(rng).items():
        if name.lower().endswith("png"):
            (folder / "only" / name).write_bytes(data)
    (folder / "only" / "rgba.bmp").write_bytes(with_pillow(smooth(rng, 20, 33, 4), "RGBA", "BMP"))
    want, _ = dataset(folder, (30, 30), color_mode="rgba")
    got = program.predict(tmp_path, identity(tmp_path, want.shape[1:]), folder, batch_size=4)
    assert np.abs(got - want).max() <= PIXEL


def classifier(folder, shape, loss, classes, activation):
    model = keras.Sequential(
        [keras.Input(shape), L.Rescaling(1 / 255), L.Flatten(), L.Dense(classes, activation=activation)], name="folder"
    )
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.save(folder / "model.keras")
    return model


LOSSES = [
    ("sparse_categorical_crossentropy", 3, "softmax", "int", ("a", "b", "c")),
    ("categorical_crossentropy", 3, "softmax", "categorical", ("a", "b", "c")),
    ("binary_crossentropy", 1, "sigmoid", "binary", ("a", "b")),
]


@pytest.mark.parametrize("loss, outputs, activation, mode, classes", LOSSES, ids=[one[3] for one in LOSSES])
def test_labels(loss, outputs, activation, mode, classes, tmp_path, rng):
    folder = fill(tmp_path / "data", rng, classes)
    x, y = dataset(folder, (16, 16), label_mode=mode)
    model = classifier(tmp_path, (16, 16, 3), loss, outputs, activation)
    want = model.evaluate(x, y, batch_size=8, verbose=0)
    for flags in ((), ("--label-mode", mode)):
        got = program.evaluate(tmp_path / "model.keras", folder, *flags, batch_size=8)
        assert abs(got["loss"] - want) <= 1e-5 * max(1, want)


def test_training_and_validation_split(tmp_path, rng):
    """The same files validate as with Keras's subset="validation" and this seed; shuffling trains on every file once."""
    folder = fill(tmp_path / "data", rng)
    model = classifier(tmp_path, (16, 16, 3), "sparse_categorical_crossentropy", 3, "softmax")
    parts = [dataset(folder, (16, 16), shuffle=True, seed=11, validation_split=0.3, subset=s) for s in ("training", "validation")]
    (x, y), (held_x, held_y) = parts
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", folder, epochs=1, batch_size=len(x), seed=11, validation_split=0.3, shuffle="true"
    )
    assert abs(trained.losses[0] - model.train_on_batch(x, y)) <= 1e-4
    got = trained.of("epoch")[0]["metrics"]["val_loss"]
    want = model.evaluate(held_x, held_y, batch_size=len(held_x), verbose=0)
    assert abs(got - want) <= 1e-4 * max(1, want)


def test_planned_bytes_hold_the_decoder(tmp_path, rng):
    """fit() asserts that the process stays within its budget; here the budget is the plan's own peak."""
    folder = tmp_path / "data"
    for one in ("a", "b"):
        (folder / one).mkdir(parents=True)
        for k in range(6):
            (folder / one / f"{k}.jpg").write_bytes(tf.io.encode_jpeg(smooth(rng, 900, 1400, 3), progressive=k % 2 == 0).numpy())
    classifier(tmp_path, (64, 64, 3), "sparse_categorical_crossentropy", 2, "softmax")
    planned = program.plan(tmp_path / "model.keras", "--data", folder, batch_size=4, threads=2, budget="1GiB")
    assert planned["data_bytes"] > 900 * 1400 * 3  # the coefficients of a progressive JPEG
    trained = program.fit(tmp_path, tmp_path / "model.keras", folder, epochs=2, batch_size=4, budget=planned["peak_bytes"])
    assert trained.plan["data_bytes"] == planned["data_bytes"]


def test_open_input_sizes(tmp_path, rng):
    folder = fill(tmp_path / "data", rng)
    model = keras.Sequential([keras.Input((None, None, 3)), L.Conv2D(2, 3), L.GlobalAveragePooling2D(), L.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.save(tmp_path / "model.keras")
    x, y = dataset(folder, (20, 30))
    got = program.evaluate(tmp_path / "model.keras", folder, batch_size=8, image_size="20,30")
    want = model.evaluate(x, y, batch_size=8, verbose=0)
    assert abs(got["loss"] - want) <= 1e-4 * max(1, want)


def test_resume_in_the_middle_of_an_epoch(tmp_path, rng):
    folder = fill(tmp_path / "data", rng)
    classifier(tmp_path, (16, 16, 3), "sparse_categorical_crossentropy", 3, "softmax")
    common = dict(batch_size=5, seed=3, shuffle="true", epochs=2)
    whole = program.fit(tmp_path, tmp_path / "model.keras", folder, name="whole", **common)
    first = program.fit(
        tmp_path, tmp_path / "model.keras", folder, name="part", checkpoint=tmp_path / "c", checkpoint_every=3, **common
    )
    assert np.array_equal(first.losses, whole.losses)


DAMAGED = {
    "cut.jpg": lambda d: d["420.jpg"][: len(d["420.jpg"]) // 2],
    "cut_header.jpg": lambda d: d["420.jpg"][:100],
    "cut.png": lambda d: d["rgb.png"][: len(d["rgb.png"]) // 2],
    "no_picture.jpg": lambda d: b"<html>not found</html>",
    "empty.png": lambda d: b"",
    "crc.png": lambda d: d["rgb.png"][:40] + bytes([d["rgb.png"][40] ^ 1]) + d["rgb.png"][41:],
    "bomb.png": lambda d: d["rgb.png"][:16] + struct.pack(">II", 2**30, 2**30) + d["rgb.png"][24:],
    "is_gif.jpg": lambda d: b"GIF89a" + bytes(20),
    "cut.gif": lambda d: d["photo.gif"][: len(d["photo.gif"]) * 2 // 3],
    "codes.gif": lambda d: d["photo.gif"][:-200] + bytes([255]) * 100 + d["photo.gif"][-100:],
    "cut.bmp": lambda d: d["rgb.bmp"][:-1],
    "bomb.bmp": lambda d: d["rgb.bmp"][:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + d["rgb.bmp"][26:],
    "run_length.bmp": lambda d: d["rgb.bmp"][:30] + struct.pack("<I", 1) + d["rgb.bmp"][34:],
    "webp.png": lambda d: b"RIFF" + bytes(4) + b"WEBP" + bytes(40),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_pictures(name, tmp_path, rng):
    folder = tmp_path / "data"
    (folder / "a").mkdir(parents=True)
    data = pictures(rng)
    for k, one in enumerate(("420.jpg", "rgb.png", "gray.jpg")):
        (folder / "a" / f"{k}{one}").write_bytes(data[one])
    path = folder / "a" / f"2{name}"
    path.write_bytes(DAMAGED[name](data))
    model, out = identity(tmp_path, (8, 8, 3)), tmp_path / "out.npy"
    ended = program.run("predict", model, "--data", folder, "--output", out, expect=4)
    assert str(path) in ended.stderr and "at byte" in ended.stderr and "P401" in ended.stderr, ended.stderr
    ended = program.run("predict", model, "--data", folder, "--output", out, "--on-bad-record", "skip")
    assert "1 damaged pictures are left out" in ended.stderr
    flags = ("--on-bad-record", "skip", "--max-bad-records")
    ended = program.run("predict", model, "--data", folder, "--output", out, *flags, 0, expect=4)
    assert "1 damaged pictures, and --max-bad-records is 0" in ended.stderr
    program.run("predict", model, "--data", folder, "--output", out, *flags, 1)
    assert len(np.load(out)) == 3
