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
from tests.support.report import FULL, SENTENCES, Run, rewrite, write_history, write_run

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


def fault(run: Run) -> str:
    result = report(run)
    assert result.exit_code == 2
    return result.stderr


def text_of(run: Run) -> str:
    return re.sub(r"\s+", " ", " ".join(page_of(run).texts))


def test_the_page_loads_no_other_file(tmp_path):
    run = write_run(tmp_path)
    write_history(tmp_path, {"train/loss": [2, 1], "val/rsum": [1, 2]})
    tags = page_of(run)
    assert not [each for each in ("http://", "https://", "@import", "url(") if each in run.page]
    for tag, attributes in tags.tags:
        assert tag not in ("iframe", "object", "embed")
        for key in ("src", "href", "srcset", "action", "poster"):
            assert attributes.get(key, "#").startswith(("#", "data:")), (tag, attributes)
    policy = next(each["content"] for each in tags.having("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy
    # Only the script of the page may run.
    assert tags.having("script") == [{}]
    [script] = re.findall("<script>(.*?)</script>", run.page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    first = run.page
    assert report(run).exit_code == 0
    assert run.page == first


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
    run = write_run(tmp_path, more={"model": {"digest": "m" * 64, "settings": settings}})
    text = text_of(run)
    assert "Training did not start: the validation rsum of 300.0 is not clearly above chance (250.0)." in text
    assert "(-S 'train.loss=[sum_hinge,max_hinge]'); 12 updates in 4 epochs are few" in text


def test_a_small_split_is_warned_about(tmp_path):
    assert "Few images: among 4 images chance scores " in text_of(write_run(tmp_path / "few"))
    many = [(f"sentence {number}",) for number in range(40)]
    assert "Few images" not in text_of(write_run(tmp_path / "many", sentences=many))


def test_training_metrics_of_another_model_are_refused(tmp_path):
    run = write_run(tmp_path, more={"model": {"digest": "m" * 64, "settings": {"best_epoch": 7}}})
    place = f"Error: {tmp_path}/training.json"
    assert f"{place} has the best epoch 2, but the model that was evaluated has 7; run `dvc" in fault(run)
    write_metrics(tmp_path / "training.json", {})
    assert fault(run) == f"{place}: damaged ('best_epoch'); run `dvc repro train`\n"


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
    assert "a true sentence is among the first 5 of 7 in" in text  # a k below the size of the pool
    assert "its image is first of 4 in" in text
    assert "(0 of the images and 3 of the sentences have one)" in text  # ties
    sections = [each["id"] for each in Tags(run.page).having("h2")]
    assert not {"layers", "training"} & set(sections)
    text = text_of(write_run(tmp_path, recalls=(1, 2)))
    assert "R@2 among the first 2" in text
    assert "R@5" not in text


def test_true_items_are_marked_by_a_sign_and_images_are_small_jpegs(tmp_path):
    run = write_run(tmp_path)
    sources = {each["src"] for each in page_of(run).having("img")}
    items = re.findall(r'<li class="([^"]*)">(.*?)</li>', run.page, re.DOTALL)
    assert {"true" in kind.split() for kind, _ in items} == {True, False}
    for kind, content in items:
        assert ("✓" in content) == ("true" in kind.split())
    assert len(sources) == len(SENTENCES)
    for source in sources:
        header, data = source.split(",")
        assert header == "data:image/jpeg;base64"
        assert Pillow.open(io.BytesIO(base64.b64decode(data))).size == (24, 16)


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


def test_a_protocol_other_than_full_is_named(tmp_path):
    sentences = [(f"sentence {number}",) for number in range(20)]
    text = text_of(write_run(tmp_path, sentences=sentences, folds=5))
    assert "Protocol coco_1k_mean5: figures are means over 5 parts that are searched one by one." in text
    assert "its image is first of 4 in" in text


def test_without_image_files_the_ids_are_shown(tmp_path):
    run = write_run(tmp_path, pictures=False)
    tags = page_of(run)
    assert not tags.having("img")
    assert '<span class="blank">image-00</span>' in run.page


@pytest.mark.parametrize("choice", [{"examples": 0}, {"examples": 1}, {"top": 1}, {"sentences": [("one",)]}])
def test_small_runs_and_galleries_work(tmp_path, choice):
    examples = page_of(write_run(tmp_path, **choice)).having("article")
    assert bool(examples) == (choice.get("examples") != 0)


def test_a_changed_image_is_an_error_with_both_digests(tmp_path):
    run = write_run(tmp_path)
    path = tmp_path / "photos" / "image-02.png"
    cataloged = json.loads((tmp_path / "images.jsonl").read_text().splitlines()[3])["sha256"]
    Pillow.new("RGB", (24, 16), "white").save(path)
    assert f"…, but the catalog has {cataloged[:12]}…; run `dvc repro`" in fault(run)
    assert not (tmp_path / "index.html").exists()


def test_a_missing_image_is_an_error_that_names_it(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / "photos" / "image-01.png").unlink()
    assert "image-01.png: no such file" in fault(run)


def test_captions_that_changed_since_the_evaluation_are_an_error(tmp_path):
    run = write_run(tmp_path)
    path = tmp_path / "captions.jsonl"
    write_captions(path, [replace(record, captions=("A pink dog.",)) for record in read_captions(path)[0]])
    assert "was made from captions" in fault(run)


def test_a_flipped_digit_of_the_metrics_does_not_reach_the_page(tmp_path):
    run = write_run(tmp_path)
    path = tmp_path / "retrieval.json"
    path.write_text(re.sub('"rsum": .', '"rsum": 9', path.read_text()).replace('"rsum": 99', '"rsum": 89'))
    assert f"{path}: damaged (its content does not match its seal); run `dvc repro evaluate`" in fault(run)


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
    found = fault(run)
    assert f"{name}: " in found
    assert message in found


def test_metrics_of_another_evaluation_are_an_error(tmp_path):
    run = write_run(tmp_path)
    rewrite(tmp_path / "retrieval.json", '"images": 4', '"images": 5')
    assert "covers 5 images and 7 captions" in fault(run)
