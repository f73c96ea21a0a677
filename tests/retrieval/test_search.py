import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image as Pillow

from fne.activations.extractor import Extractor
from fne.cli import main
from fne.retrieval import unseen
from fne.retrieval.pools import catalog_pool
from fne.retrieval.project import Catalog
from fne.store.catalog import read_captions
from fne.store.rows import Rows
from tests.projects import change_params
from tests.retrieval.projects import COLORS, SHAPES, SPLITS, draw, run_stages

IDS = [f"{COLORS[number % len(COLORS)]}-{SHAPES[number // len(COLORS)]}.png" for number in range(len(SPLITS))]
KEYS = (
    "version found text image file by measure pool candidates matches unknown_words unreadable".split()  # noqa: SIM905
)


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


def test_a_typed_caption_finds_what_its_own_vector_finds_in_the_gallery_too(project):
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


def test_an_image_finds_the_sentences_and_its_own_are_marked(project):
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


def test_images_alike_are_found_by_the_exact_ternary_product_without_the_image_itself(project):
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


def test_other_kinds_of_embedding_are_compared_by_the_cosine(project):
    change_params(project, {"embed": {"kind": "layer", "layer": "fc7"}})
    run_stages("embed")
    found = answer("--by", "layer", "red-circle.png")
    kept = rows("features/embeddings")
    query = kept.pop("red-circle.png")
    assert scores(found) == pytest.approx(
        {image: float(query @ row) for image, row in kept.items()}, abs=1e-5
    )


def test_a_file_that_the_catalog_has_is_that_image(project):
    shutil.copy("photos/red-circle.png", "copy.png")
    assert answer("--by", "fne", "copy.png")["image"] == "red-circle.png"
    assert scores(answer("copy.png")) == scores(answer("red-circle.png"))


def test_a_folder_is_searched_as_the_catalog_would_be(project):
    """The same photos, extracted again as files that nobody knows, get the same scores."""
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
def test_the_catalog_is_searched_without_what_takes_long_to_import(project, arguments):
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


def test_a_folder_that_is_indexed_is_searched_without_torch(project):
    answer("a red circle", "--in", "photos")
    program = """
import sys
from fne.cli import main
main(["search", "a red circle", "--in", "photos"], standalone_mode=False)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_new_file_is_extracted_once_and_then_remembered(project, monkeypatch):
    draw(project / "new.png", "pink", "circle")
    first = answer("new.png")
    assert (first["image"], first["file"], first["candidates"]) == (None, "new.png", 40)
    assert {match["true"] for match in first["matches"]} == {None}
    monkeypatch.setattr(Extractor, "compute", lambda *_: pytest.fail("computed again"))
    assert answer("new.png") == first
    near = answer("--by", "fne", "new.png")
    assert (near["candidates"], len(near["matches"])) == (24, 24)


def test_a_killed_search_of_a_folder_goes_on_where_it_was(project, monkeypatch):
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
    assert "1 files left out, no readable images: broken.jpg: not an image of a known format" in result.stderr
    found = json.loads(result.stdout)
    assert list(found["unreadable"]) == ["broken.jpg"]
    assert sorted(scores(found)) == ["navy.png", "olive.png", "pink.png"]
    monkeypatch.setattr(unseen, "open_embedder", lambda *_: pytest.fail("nothing is new"))
    assert answer("a red circle", "--in", "new") == found


def test_another_model_makes_the_index_anew(project):
    before = scores(answer("a red circle", "--in", "photos"))
    change_params(project, {"train": {"seed": 1}})
    run_stages("train", "encode")
    after = scores(answer("a red circle", "--in", "photos"))
    assert after != before
    assert after == scores(answer("a red circle"))


def test_the_terminal_shows_rank_score_id_and_sentence(project):
    lines = run("A yellow square.", "--k", "24").stdout.splitlines()
    assert lines[0] == "images for “A yellow square.”, by model (cosine), of 24 images of the catalog"
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


def test_words_need_no_quotes_and_unknown_ones_are_told(project):
    result = run("a", "red", "zebra", "--json")
    assert json.loads(result.stdout)["text"] == "a red zebra"
    assert result.stderr == "Unknown to the model: zebra\n"


def test_a_sheet_is_written(project):
    shutil.rmtree("photos")
    result = run("a red circle", "--sheet", "sheet.png")
    assert (result.exit_code, result.stderr) == (0, "sheet.png: a picture of the answer\n")
    with Pillow.open("sheet.png") as sheet:
        assert sheet.format == "PNG"


@pytest.mark.parametrize("words", [(), ("",), (" ", " ")])
def test_an_empty_query_is_refused(project, words):
    assert fault(*words) == "Error: the query is empty; describe what the image shows, or name an image\n"


def test_unknown_words_alone_are_refused(project):
    assert fault("zebra").startswith("Error: the model knows no word of 'zebra'; it knows the ")


def test_a_name_of_nothing_is_refused_with_what_was_perhaps_meant(project):
    assert fault("red-circl.png") == (
        "Error: 'red-circl.png' is neither a file nor the id of an image of the catalog "
        "(did you mean 'red-circle.png'?); to ask with a sentence, write it in plain words\n"
    )


def test_a_sentence_cannot_be_compared_with_images(project):
    assert fault("--by", "fne", "zz") == (
        "Error: 'zz' is neither a file nor the id of an image of the catalog "
        "(ids look like 'blue-circle.png'); --by compares images\n"
    )


def test_a_kind_that_was_not_made_is_refused(project):
    assert fault("--by", "layer", "red-circle.png") == (
        "Error: features/embeddings: holds embeddings of kind 'fne', not 'layer'; search with --by fne, "
        "or set embed.kind to layer and run `dvc repro embed`\n"
    )


def test_a_kind_that_there_is_not_is_refused(project):
    assert fault("--by", "model", "red-circle.png") == (
        "Error: --by: 'model' is not one of 'fne', 'layer', 'raw', 'zscore'\n"
    )


def test_images_that_only_an_imported_store_has_are_not_found(project):
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    known = Catalog({}, {record.id: record for record in captioned[:2]}, Path(), ())
    pool = catalog_pool(known, Rows.open(Path("vectors/images")))
    assert pool.ids == [record.id for record in captioned[:2]]


def test_names_of_files_that_are_no_text_come_in_the_json_and_move_no_cursor(project):
    shutil.copy("photos/red-circle.png", b"photos/\xff.png".decode(errors="surrogateescape"))
    Path("photos/\x1b[31m.png").write_bytes(b"")
    result = run("a red circle", "--in", "photos", "--json", "--k", "100")
    assert result.exit_code == 0, result.exception
    assert "\udcff.png" in [match["id"] for match in json.loads(result.stdout)["matches"]]
    assert "1 files left out, no readable images: [31m.png: the file is empty\n" in result.stderr


def test_a_folder_has_no_sentences(project):
    assert fault("red-circle.png", "--in", "photos") == (
        "Error: photos: a folder has no sentences to find for an image; ask for images that look alike with "
        "--by fne, or leave --in out to search the catalog\n"
    )


def test_no_results_at_all_are_refused(project):
    result = run("a red circle", "--k", "0")
    assert result.exit_code == 2
    assert "0 is not in the range x>=1" in result.stderr


def test_a_model_that_is_missing_says_how_to_get_it(project):
    Path("models/matching.safetensors").unlink()
    assert fault("a red circle") == (
        "Error: models/matching.safetensors: no such file; run `dvc repro`, or `dvc pull` to fetch it\n"
    )


def test_vectors_of_another_model_are_refused(project):
    Path("vectors").rename("kept")
    change_params(project, {"train": {"seed": 1}})
    run_stages("train", "encode")
    shutil.rmtree("vectors")
    Path("kept").rename("vectors")
    assert fault("a red circle").startswith("Error: models/matching.safetensors holds model ")
