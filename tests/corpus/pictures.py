#!/usr/bin/env python3
"""Makes the corpora of the targets image, tfrecord and csv. Needs Pillow and TensorFlow: .venv/bin/python tests/corpus/pictures.py"""

import gzip
import io
import pathlib
import struct
import zlib

import numpy as np
import tensorflow as tf
from PIL import Image

HERE = pathlib.Path(__file__).parent


def put(target, name, data):
    (HERE / target).mkdir(exist_ok=True)
    (HERE / target / name).write_bytes(data)


def encoded(pixels, mode, kind, **named):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **named)
    return file.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, rows, depth=8, color=2, interlace=0):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def put_pictures(pixels):
    jpeg = encoded(pixels, "RGB", "JPEG")
    put("image", "rgb.jpg", jpeg)
    put("image", "gray.jpg", encoded(pixels, "L", "JPEG"))
    put("image", "cmyk.jpg", encoded(pixels, "CMYK", "JPEG"))
    put("image", "progressive.jpg", encoded(pixels, "RGB", "JPEG", progressive=True))
    put("image", "bad-cut.jpg", jpeg[: len(jpeg) * 3 // 4])
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        put("image", f"{mode}.png", encoded(pixels, mode, "PNG"))
    put("image", "interlaced.png", png(1, 1, b"\0abc", interlace=1))
    put("image", "bad-bomb.png", png(1 << 30, 1 << 30, b"\0"))
    put("image", "bad-short.png", png(4, 4, b"\0" * 20))


def put_records():
    feature = lambda **kind: tf.train.Feature(**kind)
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "image": feature(bytes_list=tf.train.BytesList(value=[b"12345678"])),
                "numbers": feature(float_list=tf.train.FloatList(value=[1.5, -2.0])),
                "label": feature(int64_list=tf.train.Int64List(value=[-3, 4])),
                "none": feature(),
            }
        )
    ).SerializeToString()
    path = HERE / "tfrecord" / "records.tfrecord"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example)
        writer.write(b"")
        writer.write(example)
    records = path.read_bytes()
    put("tfrecord", "example", example)
    put("tfrecord", "records.gz", gzip.compress(records, mtime=0))
    put("tfrecord", "bad-length", records[:3] + b"\x01" + records[4:])
    put("tfrecord", "bad-checksum", records[:-6] + b"\x01" + records[-5:])
    put("tfrecord", "bad-cut", records[:-10])


def put_tables():
    put("csv", "header.csv", b"a,b,label\n1,2.5,0\n-3,+4e2,1\n")
    put("csv", "quotes.csv", b'\xef\xbb\xbf"a ""b""","c\nd"\r\n1,\r\n\r\nNA,2')
    put("csv", "tabs.tsv", b"1\t2\n3\t4\n")
    put("csv", "bad-quote.csv", b'1,"2\n')


if __name__ == "__main__":
    put_pictures(np.random.default_rng(1).integers(0, 255, (9, 11, 3), dtype=np.uint8))
    put_records()
    put_tables()
