import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner, Result
from PIL import Image as Pillow

from fne.store.catalog import read_captions, write_captions
from fne.store.checksums import seal_metrics, write_metrics
from stages.report import main
from tests.support.report import (
    FULL,
    SENTENCES,
    Run,
    rewrite,
    write_history,
    write_run,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }} {% raw %}",
    "</bdi></li></ol><style>*{display:none}</style>",
    "&lt;b&gt; \u202e dlrow \u2028 𝕌 🐕",
]


class Tags(HTMLParser):
    """Collects every start tag with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data):
        self.texts.append(data)

    def having(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def report(run: Run) -> Result:
    return CliRunner().invoke(main, run.arguments)


def page_of(run: Run) -> Tags:
    result = report(run)
    assert result.exit_code == 0, result.output
    return Tags(run.page)


def text_of(run: Run) -> str:
    return re.sub(r"\s+", " ", " ".join(page_of(run).texts))


def test_the_page_loads_no_other_file(tmp_path):
    run = write_run(tmp_path)
    write_history(tmp_path, {"train/loss": [2, 1], "val/rsum": [1, 2]})
    tags = page_of(run)
    assert "http://" not in run.page
    assert "https://" not in run.page
    assert "@import" not in run.page
    assert "url(" not in run.page
    for tag, attributes in tags.tags:
        assert tag not in ("iframe", "object", "embed")
        for key in ("src", "href", "srcset", "action", "poster"):
            assert attributes.get(key, "#").startswith(("#", "data:")), (tag, attributes)
    policy = next(each["content"] for each in tags.having("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy


def test_the_content_security_policy_allows_only_the_script_of_the_page(tmp_path):
    run = write_run(tmp_path)
    tags = page_of(run)
    assert tags.having("script") == [{}]
    [script] = re.findall("<script>(.*?)</script>", run.page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(each["content"] for each in tags.having("meta") if "http-equiv" in each)
    assert f"script-src 'sha256-{digest}';" in policy


def test_all_sections_have_a_heading_and_all_images_an_alternative_text(tmp_path):
    run = write_run(tmp_path)
    write_history(tmp_path, {"train/loss": [2, 1], "val/rsum": [1, 2], "val/more": [1, 2]})
    tags = page_of(run)
    assert len(tags.having("h1")) == 1
    headings = [each["id"] for each in tags.having("h2")]
    assert headings == ["results", "ranks", "training", "images", "sentences", "made"]
    links = [each["href"] for each in tags.having("a")]
    assert {link[1:] for link in links} == set(headings)
    assert tags.having("img")
    assert all(each["alt"] for each in tags.having("img"))
    assert len(tags.having("svg")) == 4 + 3
    assert all(each["role"] == "img" and each["aria-label"] for each in tags.having("svg"))


def test_the_head_names_the_data_set_the_experiment_and_the_source_of_the_features(tmp_path, monkeypatch):
    made = {"activations": {"digest": "a" * 64, "settings": {"backbone": "vgg16", "crops": "ten"}}}
    run = write_run(tmp_path, more=made)
    monkeypatch.setenv("DVC_EXP_NAME", "brown-axle")
    text = text_of(run)
    assert re.search(" Data set photos Catalog state [0-9a-f]{8} Experiment brown-axle ", text)
    assert " Features extracted with vgg16, ten crops, untrained weights " in text
    monkeypatch.delenv("DVC_EXP_NAME")
    assert " Experiment work tree (dvc repro) " in text_of(run)


def test_a_training_that_did_not_start_gets_advice_that_fits(tmp_path):
    settings = {"loss": ["max_hinge"], "started": False}
    run = write_run(tmp_path / "not", more={"model": {"digest": "m" * 64, "settings": settings}})
    text = text_of(run)
    assert "Training did not start:" not in text_of(write_run(tmp_path / "started", more=FULL))
    assert "Training did not start: the validation rsum of 300.0 is not clearly above chance (250.0)." in text
    assert "(-S 'train.loss=[sum_hinge,max_hinge]'); 12 updates in 4 epochs are few" in text


def test_a_small_split_is_warned_about(tmp_path):
    assert "Few images: among 4 images chance scores " in text_of(write_run(tmp_path / "few"))
    many = [(f"sentence {number}",) for number in range(40)]
    assert "Few images" not in text_of(write_run(tmp_path / "many", sentences=many))


def test_a_page_without_fine_tuning_names_the_weights_that_training_kept(tmp_path):
    run = write_run(tmp_path / "best", more=FULL)
    write_history(tmp_path / "best", {"val/rsum": [1.0, 2.0]})
    text = text_of(run)
    assert "The weights of the best epoch on the validation split are the ones evaluated here." in text
    assert "Fine-tuning" not in text
    last = FULL | {"model": FULL["model"] | {"settings": FULL["model"]["settings"] | {"keep": "last"}}}
    run = write_run(tmp_path / "last", more=last)
    write_history(tmp_path / "last", {"val/rsum": [1.0, 2.0]})
    assert "The weights of the last epoch are the ones evaluated here." in text_of(run)


def test_hostile_captions_are_shown_and_never_executed(tmp_path):
    run = write_run(tmp_path, sentences=[(text, f"{text} again") for text in HOSTILE])
    tags = page_of(run)
    allowed = {"class", "style", "width", "id", "name", "value", "type", "checked", "open", "title"}
    assert tags.having("script") == [{}]  # the script of the page
    assert len(tags.having("style")) == 1
    assert all(not key.startswith("on") for _, attributes in tags.tags for key in attributes)
    assert all(set(each) <= {"src", "alt"} for each in tags.having("img"))
    assert all(set(each) <= allowed for each in tags.having("li"))
    text = "".join(tags.texts)
    assert all(hostile in text for hostile in HOSTILE)


def test_metrics_are_shown_with_their_intervals_and_the_score_by_chance(tmp_path):
    run = write_run(tmp_path)
    text = text_of(run)
    metrics = json.loads((tmp_path / "retrieval.json").read_text())["test_full"]
    intervals = json.loads((tmp_path / "intervals.json").read_text())["test_full"]
    for direction in ("image_to_text", "text_to_image"):
        assert f"{metrics[direction]['R@1']:.1f} %" in text
        low, high = intervals[direction]["mean_rank"].values()
        mean = f"{metrics[direction]['mean_rank']:.1f} 95 % interval: {low:.1f} to {high:.1f}"
        assert f"{mean} chance" in text
    assert f"{metrics['rsum']:.1f} 95 % interval: " in text
    assert "chance 25.0 %" in text  # one image of four


def test_the_sentence_above_the_metrics_uses_a_k_below_the_size_of_the_pool(tmp_path):
    text = text_of(write_run(tmp_path))
    assert "a true sentence is among the first 5 of 7 in" in text
    assert "its image is first of 4 in" in text


@pytest.mark.parametrize("untrained", [True, False])
def test_the_banner_about_untrained_weights_is_shown_only_if_they_are_untrained(tmp_path, untrained):
    run = write_run(tmp_path, untrained=untrained)
    text = " ".join(page_of(run).texts)
    assert ("Untrained weights:" in text) == untrained
    assert ("This shows the plumbing, not a result." in text) == untrained


def test_layers_and_phases_are_shown_if_the_run_has_them(tmp_path):
    run = write_run(tmp_path, more=FULL)
    write_history(tmp_path, {"train/loss": [2, 1], "val/rsum": [1, 2], "train/phase": [1, 2]})
    text = text_of(run)
    assert "conv1_1 25.0 50.0 25.0 12.5" in text
    assert "Phase loss margin epochs 1 sum_hinge 0.2 1–1 2 max_hinge 0.2 2–2" in text
    assert "Seed 3" in text


def test_without_ternary_embeddings_there_is_no_section_about_layers(tmp_path):
    assert "layers" not in [each["id"] for each in page_of(write_run(tmp_path)).having("h2")]


def test_a_protocol_other_than_full_is_named(tmp_path):
    sentences = [(f"sentence {number}",) for number in range(20)]
    text = text_of(write_run(tmp_path, sentences=sentences, folds=5))
    assert "Protocol coco_1k_mean5: figures are means over 5 parts that are searched one by one." in text
    assert "its image is first of 4 in" in text


def test_other_recalls_are_shown(tmp_path):
    text = text_of(write_run(tmp_path, recalls=(1, 2)))
    assert "R@2 among the first 2" in text
    assert "R@5" not in text


def test_the_number_of_ties_is_shown(tmp_path):
    assert "(0 of the images and 3 of the sentences have one)" in text_of(write_run(tmp_path))


def test_true_items_are_marked_by_a_sign_and_not_only_by_color(tmp_path):
    run = write_run(tmp_path)
    page_of(run)
    items = re.findall(r'<li class="([^"]*)">(.*?)</li>', run.page, re.DOTALL)
    assert {"true" in kind.split() for kind, _ in items} == {True, False}
    for kind, content in items:
        assert ("✓" in content) == ("true" in kind.split())


def test_thumbnails_are_jpeg_data_uris_of_the_image_files(tmp_path):
    run = write_run(tmp_path)
    sources = {each["src"] for each in page_of(run).having("img")}
    assert len(sources) == len(SENTENCES)
    for source in sources:
        header, data = source.split(",")
        assert header == "data:image/jpeg;base64"
        assert Pillow.open(io.BytesIO(base64.b64decode(data))).size == (24, 16)


def test_without_image_files_the_ids_are_shown(tmp_path):
    run = write_run(tmp_path, pictures=False)
    tags = page_of(run)
    assert not tags.having("img")
    assert '<span class="blank">image-00</span>' in run.page


def test_equal_inputs_give_equal_bytes(tmp_path):
    run = write_run(tmp_path)
    write_history(tmp_path, {"train/loss": [2, 1], "val/rsum": [1, 2]})
    assert report(run).exit_code == 0
    first = run.page
    assert report(run).exit_code == 0
    assert run.page == first


def test_without_a_history_there_is_no_training_section(tmp_path):
    assert "training" not in [each["id"] for each in page_of(write_run(tmp_path)).having("h2")]


@pytest.mark.parametrize("choice", [{"examples": 0}, {"examples": 1}, {"top": 1}, {"sentences": [("one",)]}])
def test_small_runs_and_galleries_work(tmp_path, choice):
    examples = page_of(write_run(tmp_path, **choice)).having("article")
    assert bool(examples) == (choice.get("examples") != 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        (seal_metrics({"val": {}}), "under 'test_full'"),
        ('{"val": {}}', "damaged (it has no seal)"),
        ("[]", "damaged (it has no seal)"),
        (None, "no such file"),
    ],
)
@pytest.mark.parametrize("name", ["retrieval.json", "intervals.json"])
def test_a_missing_or_damaged_metrics_file_is_an_error_that_names_it(tmp_path, name, content, message):
    run = write_run(tmp_path)
    path = tmp_path / name
    path.unlink() if content is None else path.write_text(content)
    result = report(run)
    assert result.exit_code == 2
    assert f"{name}: " in result.output
    assert message in result.output


def another_picture(folder):
    Pillow.new("RGB", (24, 16), "white").save(folder / "photos" / "image-02.png")


def other_captions(folder):
    path = folder / "captions.jsonl"
    write_captions(path, [replace(record, captions=("A pink dog.",)) for record in read_captions(path)[0]])


def flipped_digit(folder):
    path = folder / "retrieval.json"
    path.write_text(re.sub('"rsum": .', '"rsum": 9', path.read_text()).replace('"rsum": 99', '"rsum": 89'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (another_picture, "…, but the catalog has {image}…; run `dvc repro`"),
        (lambda folder: (folder / "photos/image-01.png").unlink(), "image-01.png: no such file"),
        (other_captions, "was made from captions"),
        (flipped_digit, "damaged (its content does not match its seal); run `dvc repro evaluate`"),
        (
            lambda folder: rewrite(folder / "retrieval.json", '"images": 4', '"images": 5'),
            "covers 5 images and 7 captions",
        ),
        (
            lambda folder: write_metrics(folder / "training.json", {}),
            "training.json: damaged ('best_epoch'); run `dvc repro train`",
        ),
        (
            lambda folder: rewrite(folder / "training.json", '"best_epoch": 2', '"best_epoch": 7'),
            "training.json has the best epoch 7, but the model that was evaluated has 2; run `dvc repro`",
        ),
    ],
)
def test_what_changed_since_the_evaluation_does_not_reach_the_page(tmp_path, damage, message):
    run = write_run(tmp_path, more={"model": {"digest": "m" * 64, "settings": {"best_epoch": 2}}})
    image = json.loads((tmp_path / "images.jsonl").read_text().splitlines()[3])["sha256"][:12]
    damage(tmp_path)
    result = report(run)
    assert result.exit_code == 2
    assert message.format(image=image) in result.output
    assert not (tmp_path / "index.html").exists()
