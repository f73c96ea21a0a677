"""Importing features of others: which arrays are chosen, and every refusal with its exact message."""

import json
import os
import shutil
import zipfile

import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.isolation import CrashedError, run_in_subprocess
from fne.features import import_features
from fne.features.import_features import ArrayNames, import_rows
from fne.store.layout import Layer
from fne.store.rows import Rows

IDS = [f"image-{number}.jpg" for number in range(7)]
VALUES = np.arange(35, dtype=np.float32).reshape(7, 5)
LAYERS = ["conv", "conv", "fc", "fc", "fc"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to work in, and sizes so small that there are several blocks and shards.

    A process for each file would take most of the time: only a few tests need one.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_features, "run_in_subprocess", lambda work, arguments, *_: work(*arguments))
    monkeypatch.setattr(import_features, "BLOCK", 40)
    monkeypatch.setattr(import_features, "SHARD", 60)
    return tmp_path


@pytest.fixture
def _in_a_process(monkeypatch):
    monkeypatch.setattr(import_features, "run_in_subprocess", run_in_subprocess)


def hdf5(folder, **arrays):
    with h5py.File(folder / "a.h5", "w") as file:
        for name, value in arrays.items():
            file[name] = value
    return folder / "a.h5"


def npz(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def imported(source, ids_file=None, **names) -> Rows:
    import_rows(source, source.parent / "store", ArrayNames(**names), ids_file)
    return Rows.open(source.parent / "store", "activations")


def fault(source, ids_file=None, **names) -> str:
    with pytest.raises(InputError) as caught:
        imported(source, ids_file, **names)
    assert not (source.parent / "store").exists()
    assert [name for name in os.listdir(source.parent) if name.startswith((".", "tmp"))] == []
    return caught.value.message.removeprefix(f"{source}: ")


@pytest.mark.parametrize("write", [hdf5, npz])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_ids_and_layers_come_as_they_are(folder, write, dtype):
    source = write(folder, features=VALUES.astype(dtype), ids=IDS, layers=LAYERS)
    rows = imported(source)
    assert np.array_equal(rows.read(IDS), VALUES)
    assert (rows.dtype, rows.layers) == (dtype, [Layer("conv", 2), Layer("fc", 3)])
    assert rows.artifact.settings == {
        "source": source.name,
        "sha256": file_digest(source),
        "values": "features",
        "ids": "ids",
        "layers": "layers",
        "similarity": "cosine",
    }
    assert len(rows.shards) > 1
    rows.verify()


def test_a_compressed_hdf5_file_in_chunks_comes_as_it_is(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("deep/features", data=VALUES, chunks=(2, 3), compression="gzip")
        file["deep/names"] = IDS
    assert np.array_equal(imported(folder / "a.h5").read(IDS), VALUES)


@pytest.mark.parametrize("text", ["\n".join(IDS) + "\n", "\ufeff" + "\r\n".join(IDS)])
def test_an_npy_file_takes_its_ids_from_a_text_file_that_may_begin_with_a_mark(folder, text):
    np.save(folder / "fc7.npy", np.asfortranarray(VALUES))
    (folder / "ids.txt").write_bytes(text.encode())
    rows = imported(folder / "fc7.npy", ids_file=folder / "ids.txt")
    assert np.array_equal(rows.read(IDS), VALUES)
    assert (rows.layers, sorted(rows.ids)) == ([Layer("fc7", 5)], IDS)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("values", [np.asfortranarray(VALUES), VALUES.astype(">f4")])
def test_rows_of_an_archive_come_as_they_are_in_any_order_of_bytes(folder, save, values):
    save(folder / "a.npz", features=values, ids=IDS)
    assert np.array_equal(imported(folder / "a.npz").read(IDS), VALUES)


def test_whole_numbers_under_a_usual_name_are_ids(folder):
    rows = imported(npz(folder, features=VALUES, image_ids=np.arange(7) * 10))
    assert np.array_equal(rows.read(["0", "60"]), VALUES[[0, 6]])


def test_double_precision_becomes_single(folder):
    rows = imported(npz(folder, features=VALUES.astype(">f8"), ids=IDS))
    assert rows.dtype == "float32"
    assert np.array_equal(rows.read(IDS), VALUES)


def test_among_several_arrays_a_usual_name_decides_and_the_user_above_all(folder):
    arrays = {"features": VALUES, "other": -VALUES, "ids": IDS, "split": ["train"] * 7}
    assert np.array_equal(imported(npz(folder, **arrays)).read(IDS), VALUES)
    assert np.array_equal(imported(npz(folder, **arrays), values="other").read(IDS), -VALUES)


def test_equal_files_give_equal_bytes_and_no_ancestors(folder):
    source = npz(folder, features=VALUES, ids=IDS)
    first, second = (import_rows(source, folder / each, ArrayNames()) and folder / each for each in "12")
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in os.listdir(first))
    assert json.loads((first / "manifest.json").read_text())["lineage"] == {}


@pytest.mark.parametrize(
    ("arrays", "names", "message"),
    [
        ({"ids": [*IDS[:6], IDS[2]]}, {}, "1 ids are duplicated, the first is 'image-2.jpg' in rows 2 and 6"),
        ({"ids": [*IDS[:3], "", *IDS[4:]]}, {}, "row 3 has an empty id in 'ids'"),
        (
            {"ids": np.array([*(each.encode() for each in IDS[:6]), b"\xff"])},
            {},
            "row 6 of 'ids' is not UTF-8 text",
        ),
        (
            {"features": VALUES[:0], "ids": np.array([], dtype="U1")},
            {},
            "'features' (0, 5) of float32; there is nothing to import",
        ),
        (
            {"features": VALUES.astype(np.float64) * 1e300},
            {},
            "row 'image-0.jpg' has inf in layer 'features', column 1; nothing was imported",
        ),
        (
            {"layers": ["a", "b", "b", "a", "c"]},
            {},
            "layer 'a' ends before column 1 and starts again at column 3; put the columns of each layer together",
        ),
        (
            {"layers": LAYERS[:4]},
            {"layers": "layers"},
            "'layers' (4,) of text; expected one layer per column, 5 in all",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_the_place(folder, arrays, names, message):
    assert fault(npz(folder, **{"features": VALUES, "ids": IDS, **arrays}), **names) == message


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("write", [hdf5, npz])
def test_values_that_are_not_finite_are_refused_with_row_and_layer(folder, write, value):
    values = VALUES.copy()
    values[4, 3] = value
    assert fault(write(folder, features=values, ids=IDS, layers=LAYERS)) == (
        f"row 'image-4.jpg' has {value} in layer 'fc', column 3; nothing was imported"
    )


def test_what_could_be_meant_is_listed_where_several_arrays_fit(folder):
    values = fault(npz(folder, a=VALUES, b=VALUES, ids=IDS))
    assert values == "'a', 'b' each fit as values; choose one with --values NAME"
    ids = fault(npz(folder, a=VALUES, b=IDS, c=IDS))
    assert ids == "'b', 'c' each fit as ids; choose one with --ids NAME"
    unknown = fault(npz(folder, a=VALUES, ids=IDS), values="x")
    assert unknown == "has no array 'x'; it has 'a' (7, 5) of float32, 'ids' (7,) of text"


def test_missing_ids_are_refused_with_what_there_is(folder):
    few = npz(folder, features=VALUES, ids=IDS[:6])
    assert fault(few, ids="ids") == "'ids' has 6 ids for the 7 rows of 'features'"
    message = fault(few)
    assert message.startswith(
        "has no ids for the 7 rows of 'features'; it has 'features' (7, 5) of float32, 'ids'"
    )
    assert "--ids NAME" in message
    assert "--ids-file FILE" in message
    (folder / "ids.txt").write_text("a\nb\n")
    short = fault(npz(folder, features=VALUES), ids_file=folder / "ids.txt")
    assert short == "'ids.txt' has 2 ids for the 7 rows of 'features'"


@pytest.mark.parametrize(
    ("values", "described"),
    [
        (VALUES[0], "'features' (5,) of float32"),
        (VALUES[None], "'features' (1, 7, 5) of float32"),
        (VALUES.astype(np.int32), "'features' (7, 5) of int32"),
        (VALUES.astype(np.complex64), "'features' (7, 5) of complex64"),
    ],
)
def test_wrong_shapes_and_types_are_refused(folder, values, described):
    expected = "rows and columns of float16, float32 or float64"
    assert fault(npz(folder, features=values), values="features") == f"{described}; expected {expected}"
    assert fault(npz(folder, features=values)) == f"has no array with {expected}; it has {described}"


def test_object_arrays_are_refused_and_never_loaded(folder):
    message = "'{}' holds Python objects, which are refused; save it as {}".format
    source = npz(folder, features=VALUES, ids=np.array(IDS, dtype=object))
    assert fault(source) == message("ids", "strings")
    np.save(folder / "b.npy", np.array([[1.0, "x"]], dtype=object), allow_pickle=True)
    assert fault(folder / "b.npy", values="b") == message("b", "numbers")
    with h5py.File(folder / "c.h5", "w") as file:
        file["features"] = VALUES
        file.create_dataset("ids", (7,), h5py.vlen_dtype(np.int32))
    assert fault(folder / "c.h5") == message("ids", "strings")


def test_a_square_of_values_needs_usual_names_to_tell_ids_from_layers(folder):
    square = np.ones((5, 5), dtype=np.float32)
    rows = imported(npz(folder, features=square, ids=IDS[:5], layers=LAYERS))
    assert (rows.layers, len(rows.ids)) == ([Layer("conv", 2), Layer("fc", 3)], 5)


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all", b"<html></html>"])
def test_another_file_is_refused_by_its_content(folder, content):
    (folder / "a.h5").write_bytes(content)
    message = f"not an HDF5, .npy, .npz or Parquet file; it begins with {content[:8]!r}"
    assert fault(folder / "a.h5") == message


def test_truncated_files_and_damaged_headers_are_refused(folder):
    np.save(folder / "b.npy", VALUES)
    header = folder / "c.npy"
    header.write_bytes((folder / "b.npy").read_bytes().replace(b", }  ", b", } ("))
    archive = npz(folder, features=VALUES, ids=IDS)
    for source, cut in [
        (hdf5(folder, features=VALUES, ids=IDS), 200),
        (archive, 200),
        (folder / "b.npy", 20),
    ]:
        source.write_bytes(source.read_bytes()[:-cut])
        assert fault(source).startswith("damaged (")
    assert fault(header).startswith("damaged (")


def test_a_member_that_claims_more_than_it_holds_is_refused(folder):
    np.save(folder / "b.npy", VALUES)
    content = (folder / "b.npy").read_bytes().replace(b"(7, 5), }    ", b"(7, 99999), }")
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("features.npy", content)
    assert fault(folder / "a.npz") == "damaged ('features' is shorter than its header says)"


def test_a_missing_file_is_refused(folder):
    assert fault(folder / "a.h5") == "no such file; name an HDF5, .npy, .npz or Parquet file"
    (folder / "a.h5").mkdir()
    assert fault(folder / "a.h5") == "not a file"


def test_a_changed_bit_in_an_archive_is_refused(folder):
    source = npz(folder, features=VALUES, ids=IDS)
    content = bytearray(source.read_bytes())
    content[content.index(VALUES.tobytes()) + VALUES.nbytes - 2] ^= 1
    source.write_bytes(content)
    assert fault(source) == "damaged (Bad CRC-32 for file 'features.npy')"


def test_an_archive_with_a_password_is_refused(folder):
    source = npz(folder, features=VALUES, ids=IDS)
    with zipfile.ZipFile(source) as archive:
        encrypted = [archive.getinfo("features.npy").header_offset + 6, archive.start_dir + 8]
    content = bytearray(source.read_bytes())
    for flags in encrypted:
        content[flags] |= 1
    source.write_bytes(content)
    assert "is encrypted, password required" in fault(source)


def test_files_that_reach_out_of_themselves_are_refused(folder):
    source = hdf5(folder, features=VALUES, ids=IDS)
    with h5py.File(source, "a") as file:
        file["more"] = h5py.ExternalLink("/etc/passwd", "/")
    assert fault(source) == "'more' is a link out of the file; such files are refused"
    (folder / "raw").write_bytes(VALUES.tobytes())
    layout = h5py.VirtualLayout((7, 5), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "features", (7, 5))
    external = [(str(folder / "raw"), 0, VALUES.nbytes)]
    for add in (
        lambda file: file.create_dataset("features", (7, 5), "f4", external=external),
        lambda file: file.create_virtual_dataset("features", layout),
    ):
        source = hdf5(folder, ids=IDS)
        with h5py.File(source, "a") as file:
            add(file)
        assert fault(source) == "'features' is stored outside the file; such files are refused"


@pytest.mark.usefixtures("_in_a_process")
def test_what_another_process_reads_comes_as_it_is_and_its_errors_are_raised(folder):
    assert np.array_equal(imported(hdf5(folder, features=VALUES, ids=IDS)).read(IDS), VALUES)
    shutil.rmtree(folder / "store")
    message = fault(hdf5(folder, features=VALUES, ids=IDS[:1] * 7))
    assert message == "1 ids are duplicated, the first is 'image-0.jpg' in rows 0 and 1"


@pytest.mark.usefixtures("_in_a_process")
def test_a_file_in_which_hdf5_hangs_is_refused_after_the_timeout(folder, monkeypatch):
    """A text that seems longer than it is leads HDF5 into the empty end of its heap, which it walks forever."""
    source = hdf5(folder, features=VALUES, ids=IDS)
    content = bytearray(source.read_bytes())
    first_object = content.index(b"GCOL") + 16
    content[first_object + 9] ^= 1  # the second byte of its size
    source.write_bytes(content)
    monkeypatch.setattr(import_features, "TIMEOUT", 0.5)
    message = fault(source)
    assert message.startswith(
        "reading made no progress for 0.5 seconds, so the file is probably damaged; nothing"
    )
    assert message.endswith("download or write it again")


def test_a_file_that_crashes_the_process_is_refused(folder, monkeypatch):
    def crash(*_):
        raise CrashedError
        yield

    monkeypatch.setattr(import_features, "run_in_subprocess", crash)
    message = fault(hdf5(folder, features=VALUES, ids=IDS))
    assert message.startswith(
        "the process that read it crashed, so the file is probably damaged; nothing was"
    )
    assert message.endswith("download or write it again")


def test_a_file_that_changes_while_it_is_read_is_not_imported(folder, monkeypatch):
    source = hdf5(folder, features=VALUES, ids=IDS)

    def replaced_meanwhile(work, arguments, *_):
        blocks = work(*arguments)
        yield next(blocks)
        (folder / "b.h5").write_bytes(source.read_bytes())
        (folder / "b.h5").replace(source)
        yield from blocks

    monkeypatch.setattr(import_features, "run_in_subprocess", replaced_meanwhile)
    assert fault(source).endswith("changed while it was read; nothing was imported; run this again")
    assert not (folder / "store").exists()
