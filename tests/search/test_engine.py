import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from fne.cli import main
from fne.core.errors import InputError
from fne.extraction.extractor import Extractor
from fne.search import bit_kernels, bit_planes, embed_query, open_project
from fne.search.engine import embedding_similarity, encode_sentence, top_k
from fne.search.explain import explain
from fne.search.open_project import CatalogContents, Space, image_space
from fne.search.snapshot import Snapshot
from fne.store import rows as store
from fne.store.artifact import Artifact
from fne.store.catalog import read_captions
from fne.store.layout import TERNARY, Layer, pack
from fne.store.rows import Rows, write_rows
from fne.text.tokenizer import END
from fne.text.vocabulary import Vocabulary
from tests.support.projects import change_params
from tests.support.search import COLORS, SHAPES, SPLITS, draw, run_stages

IDS = [f"{COLORS[number % len(COLORS)]}-{SHAPES[number // len(COLORS)]}.png" for number in range(len(SPLITS))]
KEYS = (
    "version found text image file by measure pool candidates matches unknown_words unreadable splits tag".split()  # noqa: SIM905
)
WORDS = ["<unk>", "a", ".", "dog", "brown", "runs"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["search", *map(str, arguments)])


def answer(*arguments: object) -> dict:
    result = run(*arguments, "--json", "--k", "100")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def fault(*arguments: object) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


def scores(answered: dict) -> dict[str, float]:
    return {match["id"]: match["score"] for match in answered["matches"]}


def rows(store: str) -> dict[str, np.ndarray]:
    opened = Rows.open(Path(store))
    return dict(zip(opened.ids, opened.read(opened.ids).astype(np.float64), strict=True))


def ranked(expected: dict[str, float]) -> list[str]:
    return [each for each, _ in sorted(expected.items(), key=lambda item: (-item[1], item[0]))]


def test_a_search_records_the_shards_that_it_has_hashed(project, monkeypatch):
    monkeypatch.setattr("fne.core.stat_cache.CLOCK_RESOLUTION", 0)
    answer("--by", "fne", IDS[0])
    hashed = []
    check = store._check_shard
    monkeypatch.setattr(store, "_check_shard", lambda *shard: hashed.append(check(*shard)))
    answer("--by", "fne", IDS[0])
    assert hashed == []
    (project / ".fne/verified").unlink()
    answer("--by", "fne", IDS[0])
    assert hashed


def test_a_caption_as_query_scores_all_images_as_its_stored_vector_does(project):
    found = answer("A yellow  SQUARE.")
    caption = rows("vectors/captions")["yellow-square.png#0"]
    expected = {image: float(vector @ caption) for image, vector in rows("vectors/images").items()}
    assert scores(found) == pytest.approx(expected, abs=1e-5)
    assert set(scores(found)) == set(IDS)
    assert [match["id"] for match in found["matches"] if match["true"]] == ["yellow-square.png"]
    assert (found["found"], found["by"], found["measure"], found["candidates"]) == (
        "images",
        "model",
        "cosine",
        24,
    )


def test_an_image_finds_sentences_and_its_own_captions_are_marked(project):
    found = answer("blue-line.png")
    image = rows("vectors/images")["blue-line.png"]
    expected = {caption: float(image @ vector) for caption, vector in rows("vectors/captions").items()}
    assert scores(found) == pytest.approx(expected, abs=1e-5)
    assert sorted(match["id"] for match in found["matches"] if match["true"]) == [
        "blue-line.png#0",
        "blue-line.png#1",
    ]
    assert next(match for match in found["matches"] if match["id"] == "blue-line.png#0")["sentences"] == [
        "A blue line."
    ]


def test_an_image_of_the_gallery_has_no_true_sentences(project):
    assert {match["true"] for match in answer("gray-line.png")["matches"]} == {None}


def test_similar_images_are_ranked_by_the_exact_ternary_product_without_the_image_itself(project):
    shutil.rmtree("models")
    shutil.rmtree("vectors")
    found = answer("--by", "fne", "red-circle.png")
    kept = rows("features/embeddings")
    query = kept.pop("red-circle.png")
    expected = {
        image: sum(int(left) * int(right) for left, right in zip(query, row, strict=True))
        for image, row in kept.items()
    }
    assert scores(found) == expected
    assert [match["id"] for match in found["matches"]] == ranked(expected)
    assert found["measure"] == "ternary dot product"


@pytest.mark.parametrize(
    ("kind", "scaling"), [("layer", "unit"), ("layer", "none"), ("blocks", "none"), ("fne", "unit")]
)
def test_other_kinds_of_embedding_are_compared_by_cosine(project, kind, scaling):
    change_params(project, {"embed": {"kind": kind, "rows": scaling, "layer": "fc7"}})
    run_stages("embed")
    found = answer("--by", kind, "red-circle.png")
    kept = rows("features/embeddings")
    query = kept.pop("red-circle.png")
    lengths = {image: np.linalg.norm(row) * np.linalg.norm(query) for image, row in kept.items()}
    assert scores(found) == pytest.approx(
        {image: float(query @ row) / lengths[image] for image, row in kept.items()}, abs=1e-5
    )
    # The same photos as new files are embedded alike.
    shutil.rmtree(".fne")
    assert scores(answer("--by", kind, "red-circle.png", "--in", "photos")) == pytest.approx(
        scores(found), abs=1e-5
    )


def test_a_copy_of_a_catalog_image_is_that_image(project):
    shutil.copy("photos/red-circle.png", "copy.png")
    assert answer("--by", "fne", "copy.png")["image"] == "red-circle.png"
    assert scores(answer("copy.png")) == scores(answer("red-circle.png"))


def test_a_folder_gives_the_same_scores_as_the_catalog(project):
    """The same photos are extracted again as new files."""
    shutil.rmtree(".fne")
    by_text, in_catalog = answer("a red circle", "--in", "photos"), answer("a red circle")
    assert scores(by_text) == scores(in_catalog)
    assert (by_text["pool"], by_text["matches"][0]["file"]) == (
        "photos",
        f"photos/{by_text['matches'][0]['id']}",
    )
    by_image = answer("--by", "fne", "red-circle.png", "--in", "photos")
    assert scores(by_image) == scores(answer("--by", "fne", "red-circle.png"))


@pytest.mark.parametrize(
    "arguments",
    [("a red circle's shade",), ("red-circle.png",), ("--by", "fne", "red-circle.png")],
)
def test_the_catalog_is_searched_without_slow_imports(project, arguments):
    program = """
import sys
from fne.cli import main
main(["search", *sys.argv[1:]], standalone_mode=False)
heavy = "PIL dvc matplotlib nltk numba scipy sklearn torch torchvision".split()
print(sorted(set(heavy) & sys.modules.keys()))
"""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.splitlines()[:-1] == run(*arguments).stdout.splitlines()


def test_an_indexed_folder_is_searched_without_torch(project):
    answer("a red circle", "--in", "photos")
    program = """
import sys
from fne.cli import main
main(["search", "a red circle", "--in", "photos"], standalone_mode=False)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_new_file_is_extracted_only_once(project, monkeypatch):
    draw(project / "new.png", "pink", "circle")
    first = answer("new.png")
    assert (first["image"], first["file"], first["candidates"]) == (None, "new.png", 40)
    assert {match["true"] for match in first["matches"]} == {None}
    monkeypatch.setattr(Extractor, "compute", lambda *_: pytest.fail("computed again"))
    assert answer("new.png") == first
    similar = answer("--by", "fne", "new.png")
    assert (similar["candidates"], len(similar["matches"])) == (24, 24)


def test_a_killed_search_of_a_folder_is_resumed(project, monkeypatch):
    for color in ("pink", "navy", "olive"):
        draw(project / f"new/{color}.png", color, "circle")
    (project / "new/broken.jpg").write_bytes(b"no image")
    computed, compute = [], Extractor.compute

    def killed(extractor, pixels):
        # The first two calls measure the speed.
        computed.append(len(pixels))
        if len(computed) == 4:
            raise KeyboardInterrupt
        return compute(extractor, pixels)

    monkeypatch.setattr(Extractor, "compute", killed)
    assert run("a red circle", "--in", "new").exit_code == 1
    result = run("a red circle", "--in", "new", "--json")
    assert result.exit_code == 0
    assert "3 images: 1 done, 2 to do" in result.stderr
    # The user asked for a search and knows nothing of stores and caches.
    assert "for the index, so that the next search of this folder starts at once" in result.stderr
    assert "store" not in result.stderr
    assert "cache" not in result.stderr
    assert (
        "1 file skipped, not readable as images: broken.jpg: not an image of a known format" in result.stderr
    )
    found = json.loads(result.stdout)
    assert list(found["unreadable"]) == ["broken.jpg"]
    assert sorted(scores(found)) == ["navy.png", "olive.png", "pink.png"]
    monkeypatch.setattr(embed_query, "open_embedder", lambda *_: pytest.fail("nothing is new"))
    assert answer("a red circle", "--in", "new") == found


def test_another_model_makes_a_new_index(project):
    before = scores(answer("a red circle", "--in", "photos"))
    change_params(project, {"train": {"seed": 1}})
    run_stages("train", "encode")
    after = scores(answer("a red circle", "--in", "photos"))
    assert after != before
    assert after == scores(answer("a red circle"))


@pytest.mark.parametrize("query", [["a red circle"], ["red-circle.png"], ["--by", "fne", "red-circle.png"]])
def test_one_split_is_searched_and_named(project, query):
    everything, part = answer(*query), answer(*query, "--split", "test")
    test = {record.id for record in read_captions(Path("data/captions.jsonl"))[0] if record.split == "test"}
    wanted = [match["id"] for match in everything["matches"] if match["image"] in test]
    assert [match["id"] for match in part["matches"]] == wanted != []
    assert part["splits"] == {"test": part["candidates"]} == {"test": len(wanted)}
    assert part["splits"]["test"] == everything["splits"]["test"]
    assert f"of the catalog (test {len(wanted)})" in run(*query, "--split", "test").stdout


def test_only_images_with_a_tag_are_searched(project):
    found = answer("a red circle", "--tag", "circle")
    tagged = {each.id for each in read_captions(Path("data/captions.jsonl"))[0] if "circle" in each.tags}
    assert {match["id"] for match in found["matches"]} == tagged != set()
    assert (found["tag"], found["candidates"]) == ("circle", len(tagged))
    assert "images of the catalog with the tag circle (" in run("a red circle", "--tag", "circle").stdout


def test_the_terminal_shows_rank_score_id_and_caption(project):
    lines = run("A yellow square.", "--k", "24").stdout.splitlines()
    assert lines[0] == (
        "images for “A yellow square.”, by model (cosine), among 24 images of the catalog "
        "(train 8, val 4, test 8, gallery 4)"
    )
    assert len(lines) == 25
    (marked,) = [line for line in lines[1:] if "*" in line]
    match = next(each for each in answer("A yellow square.")["matches"] if each["true"])
    shown = [str(match["rank"]), f"{match['score']:.4f}", "*", "yellow-square.png", "A", "yellow", "square."]
    assert marked.split() == shown


def test_the_schema_of_the_json_is_stable(project):
    found = answer("a red circle")
    assert list(found) == KEYS
    assert found["version"] == 1
    assert list(found["matches"][0]) == ["rank", "score", "id", "image", "file", "sentences", "true"]


def test_words_need_no_quotes_and_unknown_words_are_reported(project):
    result = run("a", "red", "zebra", "--json")
    assert json.loads(result.stdout)["text"] == "a red zebra"
    assert result.stderr == "Warning: not in the vocabulary: zebra\n"


def test_a_sheet_is_written(project):
    shutil.rmtree("photos")
    result = run("a red circle", "--sheet", "sheet.png")
    assert (result.exit_code, result.stderr) == (0, "sheet.png: contact sheet of 10 matches\n")
    with Pillow.open("sheet.png") as sheet:
        assert sheet.format == "PNG"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the query is empty; describe what the image shows, or name an image"),
        ([" ", " "], "the query is empty; describe what the image shows, or name an image"),
        (
            ["a red circle", "--split", "tset"],
            "--split: 'tset' is not one of 'train', 'val', 'test', 'gallery'",
        ),
        (
            ["a red circle", "--tag", "crcle", "--split", "test"],
            "--tag: no image of test has the tag 'crcle'; the catalog has tags such as circle",
        ),
        (["a red circle", "--in", "photos", "--split", "test"], "remove --split and --tag"),
        (["zebra"], "no word of 'zebra' is in the vocabulary; use some of the "),
        (["red-circl.png"], "(did you mean 'red-circle.png'?); to search with a sentence, use plain words"),
        (["--by", "fne", "zz"], "(ids look like 'blue-circle.png'); name an image"),
        (["--by", "layer", "red-circle.png"], "search with --by fne, or set embed.kind to layer and run "),
        (["--by", "model", "red-circle.png"], "--by: 'model' is not one of 'blocks', 'fne', 'layer', "),
        (
            ["red-circle.png", "--in", "photos"],
            "photos: a folder has no sentences; find similar images with ",
        ),
        (["--by", "fne", "red-circle.png", "--explain"], "remove --explain, or --by and --model"),
        (["a red circle", "--k", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_with_what_helps(project, words, reason):
    assert reason in fault(*words)


def test_images_that_are_only_in_the_store_are_not_searched(project):
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    known = CatalogContents({}, {record.id: record for record in captioned[:2]}, Path(), ())
    space = image_space(known, Rows.open(Path("vectors/images")), in_memory=False)
    assert space.ids == [record.id for record in captioned[:2]]


def test_file_names_that_are_not_text_are_escaped(project):
    shutil.copy("photos/red-circle.png", b"photos/\xff.png".decode(errors="surrogateescape"))
    Path("photos/\x1b[31m.png").write_bytes(b"")
    result = run("a red circle", "--in", "photos", "--json", "--k", "100")
    assert result.exit_code == 0, result.exception
    assert "\udcff.png" in [match["id"] for match in json.loads(result.stdout)["matches"]]
    assert "1 file skipped, not readable as images: [31m.png: the file is empty\n" in result.stderr


def test_a_missing_model_is_refused_with_the_command_to_get_it(project):
    Path("models/matching/model.safetensors").unlink()
    assert fault("a red circle") == (
        "Error: models/matching/model.safetensors: no such file; run `dvc repro`, or `dvc pull` to fetch it\n"
    )


def test_vectors_of_another_model_are_refused(project):
    Path("vectors").rename("kept")
    change_params(project, {"train": {"seed": 1}})
    run_stages("train", "encode")
    shutil.rmtree("vectors")
    Path("kept").rename("vectors")
    assert fault("a red circle").startswith("Error: models/matching/model.safetensors holds model ")


def space(folder: Path, rows: np.ndarray, dtype: str, in_memory: bool) -> Space:
    ids = [f"{number:03d}" for number in range(len(rows))]
    shards = [(0, ids, rows)] if len(rows) else []
    write_rows(folder / "store", "embeddings", [Layer("all", rows.shape[1])], dtype, shards, {}, {})
    opened = Rows.open(folder / "store")
    return Space(opened, ids, ids, ids, rows=opened.read_stored(ids) if in_memory else None)


def products(space: Space, query: np.ndarray, columns: slice, count_bits, monkeypatch) -> list[float]:
    """Compare a query with all rows over some columns."""
    monkeypatch.setattr("fne.search.engine._columns", lambda store, layer: columns)
    compare = embedding_similarity(space.store, query, None, count_bits)
    return space.score(np.arange(len(space.ids)), compare).tolist()


COUNTERS = [bit_planes.ternary_products, bit_kernels.ternary_products]


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("count_bits", COUNTERS)
@pytest.mark.parametrize("features", [1, 3, 8, 12, 16, 333])
def test_ternary_products_equal_those_of_plain_python(tmp_path, monkeypatch, features, count_bits, in_memory):
    monkeypatch.setattr(open_project, "BLOCK", 7)
    monkeypatch.setattr(open_project, "BLOCK_IN_MEMORY", 7)
    rows = np.random.default_rng(features).integers(-1, 2, size=(30, features)).astype(np.int8)
    opened = space(tmp_path, rows, TERNARY, in_memory)
    for start, stop in [(0, features), (features // 3, features // 2), (features - 1, features)]:
        found = products(opened, pack(rows[4:5])[0], slice(start, stop), count_bits, monkeypatch)
        assert found == [
            sum(int(a) * int(b) for a, b in zip(row[start:stop], rows[4, start:stop], strict=True))
            for row in rows
        ]


@pytest.mark.parametrize("in_memory", [False, True])
def test_cosines_of_columns_equal_plain_loops(tmp_path, monkeypatch, in_memory):
    values = np.random.default_rng(4).standard_normal((20, 9)).astype(np.float32)
    values[3, 2:7] = 0
    opened = space(tmp_path, values, "float32", in_memory)
    found = products(opened, values[5], slice(2, 7), COUNTERS[0], monkeypatch)
    query = values[5, 2:7].astype(float)
    for row, score in zip(values[:, 2:7].astype(float), found, strict=True):
        lengths = np.sqrt(sum(row * row)) * np.sqrt(sum(query * query))
        assert score == pytest.approx(sum(row * query) / lengths if lengths else 0, abs=1e-6)


@pytest.mark.parametrize("in_memory", [False, True])
def test_chosen_rows_have_the_scores_that_they_have_among_all(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr(open_project, "BLOCK", 3)
    monkeypatch.setattr(open_project, "BLOCK_IN_MEMORY", 3)
    opened = space(tmp_path, np.arange(14, dtype=np.float32).reshape(7, 2), "float32", in_memory)
    assert opened.score(np.array([1, 5, 6]), lambda rows: rows[:, 0]).tolist() == [2, 10, 12]
    assert opened.score(np.zeros(0, dtype=int), lambda rows: rows[:, 0]).tolist() == []
    assert opened.row("003").tolist() == [6, 7]
    assert opened.row("zebra") is None


@pytest.mark.parametrize("count_bits", COUNTERS)
def test_ternary_products_do_not_overflow(count_bits):
    rows = np.ones((2, 5000), dtype=np.int8)
    rows[1] = -1
    assert count_bits(pack(rows), pack(rows)[0]).tolist() == [5000, -5000]


@pytest.mark.parametrize("in_memory", [False, True])
def test_an_empty_store_gives_no_products(tmp_path, monkeypatch, in_memory):
    opened = space(tmp_path, np.ones((0, 5), np.int8), TERNARY, in_memory)
    query = pack(np.ones((1, 5), np.int8))[0]
    assert products(opened, query, slice(0, 5), COUNTERS[0], monkeypatch) == []


@given(st.lists(st.integers(-3, 3), max_size=20), st.integers(1, 25))
def test_the_highest_scores_come_first_and_ties_keep_their_order(scores, k):
    expected = sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:k]
    assert top_k(np.array(scores, dtype=np.float64), k) == expected


def test_nan_scores_are_refused():
    with pytest.raises(InputError) as error:
        top_k(np.array([1.0, np.nan]), 1)
    assert error.value.message == "1 of 2 scores are NaN; train the model again"


def vocabulary(lowercase: bool = True) -> Vocabulary:
    return Vocabulary(
        Artifact(Path("vocabulary.json"), "vocabulary", "", {"lowercase": lowercase, "cut": "nltk"}), WORDS
    )


def test_a_sentence_becomes_numbers_and_each_unknown_word_is_listed_once():
    sentence = encode_sentence("A brown zebra runs, a zebra.", vocabulary())
    assert sentence.numbers == [1, 4, 0, 5, 0, 1, 0, 2]
    assert sentence.unknown == ["zebra"]


def test_the_end_token_is_added_if_captions_have_one():
    settings = {"lowercase": True, "cut": "nltk", "end_of_sentence": True}
    ending = Vocabulary(Artifact(Path("v"), "vocabulary", "", settings), [*WORDS, END])
    assert encode_sentence("a dog", ending).numbers == [1, 3, 6]
    with pytest.raises(InputError):
        encode_sentence("zebra", ending)


def test_a_sentence_is_cut_as_the_captions_were():
    settings = {"lowercase": True, "cut": "split", "without_vector": "drop", "longest": 3}
    dropping = Vocabulary(Artifact(Path("v"), "vocabulary", "", settings), WORDS)
    sentence = encode_sentence("A brown-zebra (dog) runs.", dropping)
    assert (sentence.numbers, sentence.unknown) == ([1, 4, 3], ["zebra"])


def test_case_matters_if_the_vocabulary_keeps_it():
    assert encode_sentence("A dog", vocabulary(lowercase=False)).unknown == ["A"]


@pytest.mark.parametrize("text", ["", "  ", ".", "?! --"])
def test_a_query_without_words_is_refused(text):
    with pytest.raises(InputError) as error:
        encode_sentence(text, vocabulary())
    assert error.value.message == f"the query {text!r} has no words; describe what the image shows"


def test_a_query_with_only_unknown_words_is_refused():
    with pytest.raises(InputError) as error:
        encode_sentence("zebra quagga.", vocabulary())
    assert error.value.message == (
        "no word of 'zebra quagga.' is in the vocabulary; use some of the 5 words of vocabulary.json, "
        "for example dog, brown, runs"
    )


def test_a_photo_is_a_query_also_if_the_scratch_folder_cannot_be_written(project):
    draw(project / "new.png", "pink", "circle")
    expected = answer("new.png")
    shutil.rmtree(".fne")
    Path(".fne").touch()  # nothing can be created below a file, not even by root
    result = run("new.png", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["matches"] == expected["matches"][:10]
    assert "the activations of the image are not kept for the next search: " in result.stderr


def test_the_query_photo_is_never_replaced_by_the_sheet(project):
    draw(project / "new.png", "pink", "circle")
    before = Path("new.png").read_bytes()
    result = run("new.png", "--sheet", "new.png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert Path("new.png").read_bytes() == before


@pytest.mark.parametrize("query", ["A yellow  SQUARE.", "blue-square.png"])
def test_each_word_has_the_drop_of_the_score_without_it(project, query):
    found = answer(query, "--explain")
    without = answer(query)
    assert without["matches"] == [
        {key: match[key] for key in match if key != "words"} for match in found["matches"]
    ]
    match = found["matches"][0]
    words = [word["text"] for word in match["words"]]
    text = query if found["found"] == "images" else match["sentences"][0]
    assert "".join(words) == text.replace(" ", "")
    shorter = " ".join(words[:1] + words[2:])
    if found["found"] == "images":
        expected = scores(found)[match["id"]] - scores(answer(shorter))[match["id"]]
        assert match["words"][1]["drop"] == pytest.approx(expected, abs=1e-6)
    assert f"{words[1]} {match['words'][1]['drop']:+.3f}" in run(query, "--explain", "--k", "1").stdout


def test_a_text_network_reads_the_sentence_without_each_word():
    read = []

    def reader(sentences):
        read.extend(sentences)
        return np.array([[len(each), 1.0] for each in sentences])

    snapshot = Snapshot(None, {}, reader=reader, imported="cosine")
    snapshot.__dict__["compare"] = lambda images, captions: captions @ images[0]
    [words] = explain(snapshot, ["A red dog"], np.array([[1.0, 0.0]]))
    assert read == ["A red dog", "red dog", "A dog", "A red"]
    assert [(each.text, each.drop) for each in words] == [("A", 2.0), ("red", 4.0), ("dog", 4.0)]
    assert explain(snapshot, ["dog"], np.array([[1.0, 0.0]])) == [[]]
