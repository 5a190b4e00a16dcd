"""model.weights.h5 as written by h5py and by hostile programs. The program must read and copy what h5py reads."""

import io
import pathlib
import random
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest

import program
from bad_files import GOLDEN, changed, data, datasets, entries, refused, with_weights

CORPUS = program.ROOT / "tests" / "corpus"
VERSIONS = {"earliest": "earliest", "v108": ("v108", "latest"), "v110": ("v110", "latest"), "latest": "latest"}
MODEL = GOLDEN / "cnn.keras"


def rewritten(folder, libver, **layout):
    """The golden model with the same weights in another version of the HDF5 format."""

    def change(blob):
        out = io.BytesIO()
        with h5py.File(io.BytesIO(blob)) as old, h5py.File(out, "w", libver=libver) as new:
            for path in paths(old):
                value = old[path][()]
                new.create_dataset(path, data=value, **(layout if np.ndim(value) else {}))
        return out.getvalue()

    return changed(folder, change, part="model.weights.h5")


def paths(file):
    found = []
    file.visititems(lambda path, item: found.append(path) if isinstance(item, h5py.Dataset) else None)
    return found


def predicted(model, folder):
    program.run("predict", model, "--data", GOLDEN / "cnn_x.npy", "--output", folder / "p.npy")
    return np.load(folder / "p.npy")


def fit_and_save(model, folder):
    saved = pathlib.Path(folder) / "saved.keras"
    program.run("fit", model, "--data", data(), "--batch-size", 4, "--steps-per-epoch", 1, "--save", saved)
    return h5py.File(io.BytesIO(entries(saved)["model.weights.h5"]))


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("layout", ({}, {"chunks": True}, {"compression": "gzip", "shuffle": True, "fletcher32": True}))
def test_the_same_weights_in_every_format_predict_the_same(libver, layout, tmp_path):
    model = rewritten(tmp_path, VERSIONS[libver], **layout)
    np.testing.assert_array_equal(predicted(model, tmp_path), predicted(MODEL, tmp_path))


def add_random_datasets(group, rng):
    """Adds datasets of random shape, type and layout; returns the paths of those that the program must copy."""
    kept = []
    for i in range(40):
        shape = tuple(rng.choice((0, 1, 2, 3, 7, 16)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))))
        dtype = rng.choice(("<f4", ">f4", "<f8", "<f2", "i1", ">i2", "<i8", "u1", ">u4", "bool", "S5"))
        values = np.asarray(np.random.default_rng(rng.randrange(2**32)).integers(0, 90, shape)).astype(dtype)
        options = {}
        if shape and all(shape) and rng.random() < 0.6:
            options["chunks"] = tuple(rng.randint(1, size) for size in shape)
            options["compression"] = rng.choice((None, "gzip"))
            options["shuffle"], options["fletcher32"] = rng.random() < 0.5, rng.random() < 0.5
        path = "/".join(rng.choice("abc") for _ in range(rng.randint(0, 3))) + f"/d{i}"
        dataset = group.create_dataset(path.lstrip("/"), data=values, **options)
        dataset.attrs["note"] = "of the sender"
        kept.append(dataset.name)
    return kept


@pytest.mark.parametrize("seed", range(8))
def test_other_datasets_are_copied_and_their_attributes_are_not(seed, tmp_path):
    rng = random.Random(seed)
    libver = VERSIONS[sorted(VERSIONS)[seed % 4]]
    kept = []

    def change(blob):
        out = io.BytesIO()
        with h5py.File(io.BytesIO(blob)) as old, h5py.File(out, "w", libver=libver) as new:
            for path in paths(old):
                new[path] = old[path][()]
            new.require_group("layers").attrs["name"] = "x" * 1000
            new.create_group("empty/vars")
            kept.extend(add_random_datasets(new.require_group("extra"), rng))
            new["extra/soft"] = h5py.SoftLink("/layers")
            new["extra/other_file"] = h5py.ExternalLink("/etc/passwd", "/")
            new["extra/text"] = "of any length"
            for i in range(200):  # as Keras marks types that HDF5 does not have
                half = new.create_dataset(f"extra/half/{i}", data=np.full(3, i, ml_dtypes.bfloat16))
                half.attrs["dtype"] = "bfloat16"
                kept.append(half.name)
        return out.getvalue()

    model = changed(tmp_path, change, part="model.weights.h5")
    with fit_and_save(model, tmp_path) as saved, h5py.File(io.BytesIO(entries(model)["model.weights.h5"])) as source:
        assert "empty/vars" in saved and "vars" in saved
        for path in kept:
            got, want = saved[path], source[path]
            assert got.dtype == want.dtype and got.shape == want.shape, path
            assert np.asarray(got[()]).tobytes() == np.asarray(want[()]).tobytes(), path
        assert not {"soft", "other_file", "text"} & set(saved["extra"])
        attributes = []
        saved.visititems(lambda path, item: attributes.extend(item.attrs.items()))
        assert attributes == [("dtype", "bfloat16")] * 200


@pytest.mark.parametrize("name", sorted(path.name for path in (CORPUS / "hdf5").glob("*.h5")))
def test_a_hostile_file_costs_an_error_and_nothing_else(name, tmp_path):
    blob = (CORPUS / "hdf5" / name).read_bytes()
    model = changed(tmp_path, lambda _: blob, part="model.weights.h5")
    flags = ("--data", data(), "--batch-size", 4, "--steps-per-epoch", 1, "--budget", "256MiB")
    ended = program.run("fit", model, *flags, "--save", tmp_path / "saved.keras", expect=None, timeout=20)
    assert ended.code in (0, 2), ended.stderr
    assert ended.code == 0 or "\nerror P2" in "\n" + ended.stderr, ended.stderr


def test_1600_nested_groups(tmp_path):
    refused(213, "plan", CORPUS / "zip" / "h5_1600_groups.keras", mentions=["nested deeper than 64"], timeout=10)


def replaced(change):
    """Replaces the dataset of the first weight: `change` gets the group, the name and the old values."""

    def edit(f):
        path = datasets(f)[0]
        value = f[path][()]
        del f[path]
        group, name = path.rsplit("/", 1)
        change(f[group], name, value)

    return edit


def large_chunks(group, name, value):
    chunks = (4096, 4096) + (1,) * (value.ndim - 2)
    group.create_dataset(name, data=value, chunks=chunks, maxshape=(None,) * value.ndim, compression="gzip")


@pytest.mark.parametrize(
    "change, reason",
    (
        (large_chunks, "chunks are larger"),
        (lambda g, n, v: g.create_dataset(n, data=v, compression="lzf"), "filter 32000"),
        (lambda g, n, v: g.create_dataset(n, v.shape, v.dtype, external=[("/etc/passwd", 0, v.nbytes)]), "another file"),
        (lambda g, n, v: g.create_dataset(n, data=v.astype("S8")), "text"),
    ),
    ids=("large chunks", "another filter", "another file", "text"),
)
def test_a_weight_that_cannot_be_read_is_named_with_the_reason(change, reason, tmp_path):
    model = with_weights(tmp_path, replaced(change))
    flags = ("--data", GOLDEN / "cnn_x.npy", "--output", tmp_path / "p.npy")
    refused(213, "predict", model, *flags, mentions=["cannot be read", reason])


def deflated(folder, parts):
    path = pathlib.Path(folder) / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in parts.items():
            archive.writestr(name, value)
    return path


def test_weights_that_somebody_packed_are_read(tmp_path):
    model = deflated(tmp_path, entries(MODEL))
    np.testing.assert_array_equal(predicted(model, tmp_path), predicted(MODEL, tmp_path))


def test_weights_that_unpack_to_far_more_are_refused_before_they_are(tmp_path):
    model = deflated(tmp_path, {**entries(MODEL), "model.weights.h5": bytes(70 << 20)})
    refused(203, "plan", model, mentions=["decompress from", "70.0 MiB"])


def test_what_was_saved_is_read_by_h5py_with_all_its_groups(tmp_path):
    with fit_and_save(MODEL, tmp_path) as saved, h5py.File(io.BytesIO(entries(MODEL)["model.weights.h5"])) as source:
        kinds = {}
        saved.visititems(lambda path, item: kinds.__setitem__(path, type(item)))
        before = {}
        source.visititems(lambda path, item: before.__setitem__(path, type(item)))
        assert before.items() <= kinds.items()
        for path in paths(saved):
            assert saved[path].chunks is None and np.isfinite(np.asarray(saved[path][()], "f8")).all()
