"""Makes the HDF5 files beside this script, and expected.json with the values that h5py reads from them. Needs h5py and ml_dtypes:

    .venv/bin/python tests/golden/formats/hdf5/make.py
"""

import json
import pathlib

import h5py
import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
VERSIONS = {"earliest": ("earliest", "latest"), "v108": ("v108", "latest"), "v110": ("v110", "latest"), "latest": "latest"}
RAMP = np.arange(-20, 40).reshape(6, 10)


def low_level(file, name, array, configure):
    """Makes a dataset with creation properties for which h5py has no argument."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    configure(properties)
    kind, space = h5py.h5t.py_create(array.dtype, logical=True), h5py.h5s.create_simple(array.shape)
    h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=properties))[...] = array


def early_chunks(properties):
    properties.set_chunk((4, 4))
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)


def element_types(file):
    for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        for order in "<>":
            file[f"{'little' if order == '<' else 'big'}/{name}"] = np.abs(RAMP[0]).astype(order + name)
    file["bool"] = RAMP[2] > 3
    file["scalar"] = np.int64(-4)
    file["no_elements"] = np.zeros((0, 3), "f4")
    file.create_dataset("bfloat16", data=RAMP[0].astype(ml_dtypes.bfloat16)).attrs["dtype"] = "bfloat16"
    many = file.create_dataset("bfloat16_among_attributes", data=RAMP[1].astype(ml_dtypes.bfloat16))
    for i in range(12):
        many.attrs[f"a{i}"] = "x" * 40
    many.attrs["dtype"] = "bfloat16"
    file["opaque"] = np.zeros(3, "V2")
    file["text"] = "any length"
    file["fixed_text"] = np.array([b"ab", b"c"])
    file["complex"] = np.zeros(2, "c8")


def layouts(file):
    ramp = RAMP.astype("f4")
    file.create_dataset("contiguous", data=ramp)
    low_level(file, "compact", ramp, lambda properties: properties.set_layout(h5py.h5d.COMPACT))
    file.create_dataset("never_written", (3, 4), "f4")
    file.create_dataset("filled", (3, 4), ">i2", fillvalue=-7)
    file.create_dataset("chunks", data=ramp, chunks=(4, 4))
    low_level(file, "early_chunks", ramp, early_chunks)
    file.create_dataset("one_chunk", data=ramp, chunks=(6, 10))
    file.create_dataset("one_gzip_chunk", data=ramp, chunks=(6, 10), compression="gzip")
    file.create_dataset("gzip", data=ramp, chunks=(4, 4), compression="gzip")
    file.create_dataset("gzip_shuffle_fletcher32", data=ramp, chunks=(4, 4), compression="gzip", shuffle=True, fletcher32=True)
    file.create_dataset("shuffle", data=ramp.astype(">f8"), chunks=(5, 3), shuffle=True)
    file.create_dataset("few_chunks", (60, 10), "f4", chunks=(4, 4), fillvalue=2.5)[8:14] = ramp
    many = file.create_dataset("many_chunks", (1500,), "i4", chunks=(1,), compression="gzip")
    many[:1200] = np.arange(1200)
    file.create_dataset("unlimited", data=ramp, chunks=(4, 4), maxshape=(None, 10))
    file.create_dataset("unlimited_twice", data=ramp, chunks=(4, 4), maxshape=(None, None))
    file.create_dataset("shrunk", data=ramp, chunks=(4, 4), maxshape=(6, 10)).resize((3, 10))
    file.create_dataset("lzf", data=ramp, chunks=(4, 4), compression="lzf")
    file.create_dataset("external", (2,), "f4", external=[("/nonexistent", 0, 8)])
    virtual = h5py.VirtualLayout((2,), "f4")
    virtual[:] = h5py.VirtualSource("nonexistent.h5", "x", (2,))
    file.create_virtual_dataset("virtual", virtual)


def links(file):
    file["a/vars/0"] = np.arange(3, dtype="f4")
    file["same"] = file["a/vars/0"]
    file["a/back"] = file["/"]
    file["soft"] = h5py.SoftLink("/a/vars/0")
    file["dangling"] = h5py.SoftLink("/nothing")
    file["external"] = h5py.ExternalLink("/etc/passwd", "/x")
    file["named_type"] = np.dtype("f4")
    file.create_group("empty/vars")


def large_heap(file):
    """Writes the bfloat16 mark after many other texts."""
    file.create_dataset("text", data=["some text"] * 1000, dtype=h5py.string_dtype())
    file.create_dataset("bfloat16", data=RAMP[3].astype(ml_dtypes.bfloat16)).attrs["dtype"] = "bfloat16"


def members(count):
    def make(file):
        for i in range(count):
            file[f"layers/dense_{i % 3}/vars/{i}"] = np.float32(i)

    return make


def many_members(file):
    for i in range(300):
        file[f"vars/{i}"] = np.int16(i)


def read(file):
    """Returns path and values of every dataset; None for elements that are not numbers."""
    found = {}

    def visit(path, item):
        if not isinstance(item, h5py.Dataset):
            return
        if item.attrs.get("dtype") == "bfloat16":
            values = np.asarray(item[()]).view(ml_dtypes.bfloat16)
        elif item.dtype.kind in "fiub" and not item.external and not item.is_virtual:
            values = np.asarray(item[()])
        else:
            found[path] = None
            return
        found[path] = {"dtype": values.dtype.name, "shape": item.shape, "values": values.astype("f8").ravel().tolist()}

    file.visititems(visit)
    return found


def main():
    expected = {}
    kinds = {"types": element_types, "layouts": layouts, "links": links, "3-members": members(3), "30-members": members(30)}
    for version, libver in VERSIONS.items():
        for kind, fill in kinds.items():
            make(expected, f"{kind}-{version}.h5", fill, libver=libver)
    make(expected, "300-members-earliest.h5", many_members, libver="earliest")
    make(expected, "300-members-latest.h5", many_members, libver="latest")
    make(expected, "large-heap.h5", large_heap)
    make(expected, "user-block.h5", members(3), userblock_size=1024)
    make(expected, "creation-order.h5", members(30), libver="latest", track_order=True)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=None, sort_keys=True) + "\n")


def make(expected, name, fill, **options):
    with h5py.File(HERE / name, "w", **options) as file:
        fill(file)
    with h5py.File(HERE / name, "r") as file:
        expected[name] = read(file)


if __name__ == "__main__":
    main()
