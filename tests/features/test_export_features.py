import sys
from pathlib import Path

import numpy as np
import pytest

from fne.features import export_features
from fne.store.catalog import Captioned, Image, write_captions, write_images
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.commands import fne, refused
from tests.support.features import write_store

pytest.importorskip("pyarrow")

IDS = [f"{number:03d}.jpg" for number in range(50)]
CAPTION_IDS = [f"{image}#{number}" for image in IDS for number in range(2)]
LAYERS = [Layer("conv", 3), Layer("fc7", 5)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store(path="features/activations", name="activations", ids=IDS, dtype="float32") -> Rows:
    drawn = np.random.default_rng(0).normal(size=(len(ids), 8))
    drawn[0] = [0.0, -0.0, 6.1e-05, 5.96e-08, -1.0, 65504, 1 / 3, 0.1]  # both zeros, subnormal halves
    values = np.sign(drawn).astype(np.int8) if dtype == "ternary" else drawn.astype(dtype)
    rows = dict(zip(ids, values, strict=True))
    return write_store(Path(path), name, LAYERS, rows, dtype, shards=3, settings={"seed": 0})


def run(*arguments: str) -> None:
    result = fne(*arguments)
    assert result.exit_code == 0, result.output


def exported(form: str, store="features/activations") -> None:
    run("export", store, "--to", form)


def bits(rows: Rows, ids) -> bytes:
    return rows.read(ids).tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "ternary"])
def test_parquet_comes_back_bit_for_bit_with_ids_layers_and_type(dtype):
    rows = store(dtype=dtype)
    exported("parquet")
    run("import", "exported/activations.parquet")
    back = Rows.open(Path("features/imported"), "activations")
    assert np.array_equal(back.read(IDS), rows.read(IDS))
    if dtype != "ternary":
        assert (sorted(back.ids), back.layers, back.dtype) == (IDS, LAYERS, dtype)
        assert bits(back, IDS) == bits(rows, IDS)


def check_imported_captions(source: str, rows: Rows) -> None:
    run("import", "--captions", source)
    back = Rows.open(Path("features/imported_captions"), "caption_features")
    assert sorted(back.ids) == CAPTION_IDS
    assert bits(back, CAPTION_IDS) == bits(rows, CAPTION_IDS)


def test_captions_keep_their_ids_and_numbers():
    rows = store("vectors/captions", "caption_vectors", CAPTION_IDS)
    exported("parquet", "vectors/captions")
    check_imported_captions("exported/captions.parquet", rows)


def test_a_file_that_pandas_has_read_and_written_comes_back_bit_for_bit():
    pandas = pytest.importorskip("pandas")
    rows = store("vectors/captions", "caption_vectors", CAPTION_IDS)
    exported("parquet", "vectors/captions")
    frame = pandas.read_parquet("exported/captions.parquet")
    assert list(frame.columns) == ["id", "image", "number", "vector"]
    assert list(frame["image"][:1] + "#" + frame["number"][:1].astype(str)) == [frame["id"][0]]
    assert np.stack(frame["vector"]).tobytes() == bits(rows, list(frame["id"]))
    frame = frame.sort_values("id").drop(columns="id").rename(columns={"image": "image_id"})
    frame.to_parquet("pandas.parquet", row_group_size=7)
    check_imported_captions("pandas.parquet", rows)


def test_numpy_opens_the_array_and_it_comes_back_bit_for_bit():
    rows = store()
    exported("npy")
    array, ids = np.load("exported/activations.npy"), Path("exported/activations.ids.txt").read_text().split()
    assert array.tobytes() == bits(rows, ids)
    run("import", "exported/activations.npy", "--ids-file", "exported/activations.ids.txt")
    assert bits(Rows.open(Path("features/imported")), IDS) == bits(rows, IDS)


def test_duckdb_opens_a_file_in_three_lines():
    duckdb = pytest.importorskip("duckdb")
    rows = store()
    exported("parquet")
    table = duckdb.sql("select id, vector from 'exported/activations.parquet' order by id")
    found = table.fetchall()
    assert [row_id for row_id, _ in found] == IDS
    assert np.array([vector for _, vector in found], np.float32).tobytes() == bits(rows, IDS)


def test_datasets_opens_a_file_in_three_lines(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets")
    rows = store()
    exported("parquet")
    data = datasets.Dataset.from_parquet(
        "exported/activations.parquet", cache_dir=str(tmp_path / "cache")
    ).with_format("numpy")
    assert np.asarray(data["vector"][:], np.float32).tobytes() == bits(rows, list(data["id"]))


def test_faiss_searches_the_array_in_three_lines():
    faiss = pytest.importorskip("faiss")
    rows = store()
    exported("npy")
    vectors = np.load("exported/activations.npy")
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    _, nearest = index.search(rows.read([IDS[7]]), 1)
    assert Path("exported/activations.ids.txt").read_text().split()[nearest[0][0]] == IDS[7]


def write_catalog(params: str) -> None:
    write_images(Path("data/images.jsonl"), [Image(each, f"in/{each}", "0" * 64, 1, 9, 9) for each in IDS])
    captioned = [Captioned(each, "train", (f"text {each}", "b"), ()) for each in IDS]
    write_captions(Path("data/captions.jsonl"), captioned)
    Path("params.yaml").write_text(params)


def test_clip_retrieval_gets_an_array_and_aligned_metadata(folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = store("vectors/images", "image_vectors")
    write_catalog("catalog:\n  root: photos\n")
    exported("clip-retrieval", "vectors/images")
    array = np.load("exported/images/img_emb/img_emb_0.npy")
    shown = parquet.read_table("exported/images/metadata/metadata_0.parquet").to_pydict()
    assert sorted(shown) == ["caption", "id", "image_path"]
    assert array.tobytes() == bits(rows, shown["id"])
    for row_id, path, caption in zip(shown["id"], shown["image_path"], shown["caption"], strict=True):
        assert (path, caption) == (str(folder / "photos/in" / row_id), f"text {row_id}")
    store("vectors/captions", "caption_vectors", CAPTION_IDS)
    exported("clip-retrieval", "vectors/captions")
    shown = parquet.read_table("exported/captions/metadata/metadata_0.parquet").to_pydict()
    assert Path("exported/captions/text_emb/text_emb_0.npy").is_file()
    assert dict(zip(shown["id"], shown["caption"], strict=True))[f"{IDS[3]}#1"] == "b"


def test_a_damaged_parameter_file_is_an_error_and_gives_no_wrong_paths():
    store("vectors/images", "image_vectors")
    write_catalog("catalog: [")
    message = refused("export", "vectors/images", "--to", "clip-retrieval")
    assert message.startswith("Error: params.yaml: ")
    assert not Path("exported").exists()


def test_the_same_store_gives_the_same_bytes():
    store()
    for name in ("a.parquet", "b.parquet"):
        run("export", "features/activations", "--to", "parquet", "--output", name)
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()


@pytest.mark.parametrize("form", ["parquet", "npy", "clip-retrieval"])
def test_a_target_that_exists_or_cannot_be_made_is_one_line_and_nothing_is_replaced(form):
    store()
    arguments = "export", "features/activations", "--to", form, "--output"
    Path("file").write_text("mine")
    below = refused(*arguments, "file/x")
    assert below.startswith("Error: file/x")
    assert below.endswith(": cannot be written (File exists); choose another place\n")
    name = "file" if form == "clip-retrieval" else f"file.{form}"
    Path(name).write_text("mine")
    there = refused(*arguments, name)
    assert there == f"Error: {name}: exists already; remove it, or choose another name with --output\n"
    assert Path(name).read_text() == Path("file").read_text() == "mine"


def test_an_export_that_was_interrupted_is_completed_by_the_same_command(monkeypatch):
    rows = store()
    arguments = ["export", "features/activations", "--to", "npy"]
    with monkeypatch.context() as patch:
        patch.setattr(export_features, "_write_array", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert fne(*arguments).exit_code != 0
    assert [path.name for path in Path("exported").iterdir()] == ["activations.ids.txt"]
    run(*arguments)
    ids = Path("exported/activations.ids.txt").read_text().splitlines()
    assert len(ids) == 50
    assert np.load("exported/activations.npy").tobytes() == bits(rows, ids)
    Path("exported/activations.npy").unlink()
    store(ids=IDS[:9])
    assert refused(*arguments).startswith(
        "Error: exported/activations.ids.txt: exists already; remove it, or "
    )


def test_without_pyarrow_its_extra_is_named(monkeypatch):
    store()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = refused("export", "features/activations", "--to", "parquet")
    assert message.startswith("Error: exported/activations.parquet: this needs pyarrow")
    assert message.endswith("pip install -e '.[arrow]'\n")
    exported("npy")
