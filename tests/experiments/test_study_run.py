import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.core.settings import load_params
from fne.evaluation.metrics.recall import sum_of_recalls, summarize
from fne.experiments import study_run as running
from fne.experiments.study_file import load_study
from fne.experiments.study_results import find_result
from fne.experiments.study_run import divide, reduce_rows, run_study, settings_of
from fne.features.embeddings import EMBEDDINGS
from fne.features.standardize import fit
from fne.features.write_embeddings import write_embeddings
from fne.matching.closed_form import CaptionedImages, matcher_of
from fne.matching.closed_form import fit as align
from fne.store.catalog import Captioned, captioned_in, read_captions, split_ids
from fne.store.layout import Layer
from fne.store.rows import Rows
from fne.text.tokens import read_tokens
from tests.support.features import store, write_store
from tests.support.refusals import refused
from tests.support.studies import LAYERS, STUDY, write_file, write_study

SPLITS = ["train"] * 14 + ["val"] * 6 + ["test"] * 5
IMAGES = [Captioned(f"r{number:02d}", split, ("a", "b"), ()) for number, split in enumerate(SPLITS)]


@pytest.fixture
def study(tmp_path, monkeypatch):
    path = write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    return load_study(path)


def test_every_cell_fold_and_seed_is_run_once_and_the_project_is_not_changed(study, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    lines = []
    assert run_study(study, tmp_path / "params.yaml", tmp_path / "out", lines.append) == 15
    assert len(lines) == 16
    assert lines[0] == f"{study.path}: {study.digest}, 2 hypotheses, recorded in {tmp_path / 'out'}"
    assert lines[1].startswith("1 of 15: small/all/ternary, fold 0, seed 0: validation ")
    assert run_study(study, tmp_path / "params.yaml", tmp_path / "out", lines.append) == 0
    made = [path for path in sorted(tmp_path.rglob("*")) if tmp_path / "out" not in [path, *path.parents]]
    # Statistics of hashed files are kept in the scratch folder.
    assert [path for path in made if ".fne" not in path.parts] == before


def test_a_result_equals_the_closed_form_computed_by_hand(study, tmp_path):
    """The captions and words of the runner, and everything else by the functions of the pipeline."""
    cell = next(each for each in study.cells if each.name == "small/last/z")
    folder = tmp_path / "out"
    workspace = running.Workspace(
        study,
        load_params(tmp_path / "params.yaml"),
        running.load_runtime(tmp_path / "params.yaml"),
        folder,
        folder,
    )
    result = workspace.run(cell, 1, 0)
    settings = settings_of(load_params(tmp_path / "params.yaml"), cell.overrides, "test")
    captions, tokens = workspace._captions(settings, 1)
    captioned, words = read_captions(captions)[0], read_tokens(tokens)
    rows = Rows.open(tmp_path / "features/small")
    embedding = EMBEDDINGS["zscore"](rows, fit(rows, split_ids(captioned, "train")), settings.embed.choices())
    write_embeddings(tmp_path / "by_hand", rows, embedding, {}, {})
    images = {
        split: CaptionedImages.of(
            [each.id for each in captioned_in(captioned, split)],
            [[words.read(name) for name in each.caption_ids] for each in captioned_in(captioned, split)],
        )
        for split in ("train", "val", "test")
    }
    rows = Rows.open(tmp_path / "by_hand")
    size = words.artifact.settings["words"]
    own = settings.train.cca
    matcher = matcher_of(align(rows, images["train"], images["val"], size, "cca", own).state)
    test = images["test"]
    vectors = matcher.embed_images(torch.from_numpy(rows.read(test.ids).astype(np.float32))).detach().numpy()
    bags = test.bags
    scores = np.empty((len(test), len(bags)))
    for number in range(len(bags)):
        numbers = bags.words[bags.offsets[number] : bags.offsets[number + 1]]
        sentence = matcher.embed_captions(torch.tensor(numbers)[None], torch.tensor([len(numbers)]))
        scores[:, number] = vectors @ sentence.detach().numpy()[0]
    true = test.owners[None, :] == np.arange(len(test))[:, None]
    assert result.image_ids == test.ids
    best = np.where(true, scores, -np.inf).max(axis=1, keepdims=True)
    wrong = np.where(true, -np.inf, scores)
    check_ranks(result.image_ranks, wrong, best)
    check_ranks(result.caption_ranks, wrong.T, scores[test.owners, np.arange(len(bags))][:, None])
    assert result.rsum == sum_of_recalls(summarize(result.image_ranks), summarize(result.caption_ranks))


def check_ranks(ranks, wrong, best):
    """Compare ranks with counts of better wrong answers; many captions are the same, so their scores are equal."""
    above, not_below = (wrong > best + 1e-5).sum(axis=1), (wrong >= best - 1e-5).sum(axis=1)
    assert (above < ranks).all()
    assert (ranks <= 1 + not_below).all()
    assert not_below.min() < above.max()


def test_a_killed_study_continues_and_ends_with_the_same_bytes(study, tmp_path, monkeypatch):
    params = tmp_path / "params.yaml"
    run_study(study, params, tmp_path / "whole", lambda line: None)

    calls = []

    def killed(*arguments):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(arguments)
        original(*arguments)

    original = running.keep_result
    monkeypatch.setattr(running, "keep_result", killed)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, params, tmp_path / "parts", lambda line: None)
    monkeypatch.setattr(running, "keep_result", original)
    assert run_study(study, params, tmp_path / "parts", lambda line: None) == 11
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.h5"))
    assert len(files) == 15
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_a_changed_setting_is_run_again(study, tmp_path):
    params = tmp_path / "params.yaml"
    run_study(study, params, tmp_path / "out", lambda line: None, only=["small/all/ternary"])
    content = params.read_text().replace("high: 0.15", "high: 0.75")
    params.write_text(content)
    assert run_study(study, params, tmp_path / "out", lambda line: None, only=["small/all/ternary"]) == 3


def test_bytes_are_those_of_the_code(study, tmp_path):
    run_study(study, tmp_path / "params.yaml", tmp_path / "out", lambda line: None)
    sizes = {cell.name: find_result(tmp_path / "out", cell, 0, 0).size for cell in study.cells}
    assert sizes == {
        "small/all/ternary": 2,  # 7 values of 2 bits
        "small/all/z": 14,
        "small/last/z": 8,
        "small/last/ternary": 1,
        "projected/pca": 4,
    }


def test_the_inner_validation_chooses_among_the_draws(tmp_path, monkeypatch):
    training = {
        "train.method": "steps",
        "train.start": "random",
        "train.embed_dim": 4,
        "train.epochs": 2,
        "train.patience": 2,
        "train.text_encoder": "bow",
        "train.batch": 8,
    }
    path = write_study(tmp_path)
    tuning = {"key": "train.learning_rate", "draws": 3, "low": 0.0001, "high": 1.0}
    grids = {"one": {"set": training | {"embed.kind": "zscore"}, "factors": {"only": {"cell": {}}}}}
    write_file(path, tuning=tuning, grids=grids, hypotheses=[], folds=2)
    monkeypatch.chdir(tmp_path)
    study = load_study(path)
    assert run_study(study, tmp_path / "params.yaml", tmp_path / "out", lambda line: None) == 2
    found = find_result(tmp_path / "out", study.cells[0], 0, 0)
    assert [trial["draw"] for trial in found.trials] == study.draws
    assert found.validation == max(trial["validation"] for trial in found.trials)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        ({"embed.kinds": "fne"}, "s.yaml: cell: there is no key 'embed.kinds' (did you mean 'embed.kind'?)"),
        (
            {"evaluate.top": 5},
            "'evaluate.top' is in no section of a study (catalog, embed, embed_text, tokenize, train)",
        ),
        ({"embed.low": 9.0}, "section 'embed': low must be below high, got low=9.0, high=0.15"),
        (
            {"tokenize.vectors": "glove.txt"},
            "tokenize.vectors: a study has no pretrained word vectors; use weights/random_words.yaml",
        ),
    ],
)
def test_wrong_overrides_are_refused_before_anything_runs(study, tmp_path, overrides, fault):
    with pytest.raises(InputError) as caught:
        settings_of(load_params(tmp_path / "params.yaml"), overrides, "s.yaml: cell")
    assert fault in caught.value.message


@pytest.mark.parametrize(
    ("changes", "only", "fault"),
    [
        (
            {"layers": {"many": {"embed.layers": "last:9"}}},
            (),
            "small/many: features/small: has 2 layers, and 'last:9' needs 9; see `embed.layers` in params.yaml",
        ),
        (
            {"how": {"large": {"study.project": "pca:99"}}},
            (),
            "small/large: study.project is pca:99, but the embedding has 7 values",
        ),
        ({"how": {"own": {"embed.source": "features/none"}}}, (), "features/none"),
        (
            {"how": {"own": {}}},
            ("large",),
            "no cell has a name that begins with 'large'; the first is 'small/own'",
        ),
    ],
)
def test_faults_of_any_cell_are_found_before_the_file_is_recorded(
    tmp_path, monkeypatch, changes, only, fault
):
    path = write_study(tmp_path, hypotheses=[], grids={"small": {"set": {}, "factors": changes}})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        run_study(load_study(path), tmp_path / "params.yaml", tmp_path / "out", print, only)
    assert fault in caught.value.message
    assert not (tmp_path / "out/record.json").exists()


def test_a_new_version_of_the_trainer_runs_training_runs_by_steps_again(study, tmp_path, monkeypatch):
    params, folder = tmp_path / "params.yaml", tmp_path / "out"
    steps = {"train.method": "steps", "train.start": "random", "train.text_encoder": "bow", "train.epochs": 1}
    grids = {"one": {"set": {}, "factors": {"how": {"steps": steps, "closed": {}}}}}
    study = load_study(write_file(study.path, grids=grids, hypotheses=[], folds=2))
    assert run_study(study, params, folder, print) == 4
    monkeypatch.setattr(running, "TRAINER_VERSION", running.TRAINER_VERSION + 1)
    assert run_study(study, params, folder, print) == 2


def test_a_closed_form_that_does_not_choose_on_the_inner_validation_is_refused(tmp_path, monkeypatch):
    path = write_study(tmp_path)
    text = path.read_text().replace("choose_on: val", "choose_on: train")
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    with refused(
        f"{path}: small/all/ternary: train.cca.choose_on must be 'val', the inner validation of a fold, "
        "got 'train'"
    ):
        run_study(load_study(path), tmp_path / "params.yaml", tmp_path / "out", lambda line: None)


def ids(images, split):
    return {image.id for image in images if image.split == split}


def test_every_image_of_train_and_val_is_tested_once_and_test_images_are_withheld():
    folds = [divide(IMAGES, 4, fold, 0.2, seed=0) for fold in range(4)]
    tested = [ids(fold, "test") for fold in folds]
    assert [len(each) for each in tested] == [5, 5, 5, 5]
    assert set.union(*tested) == {image.id for image in IMAGES if image.split != "test"}
    for fold in folds:
        assert len(fold) == 20
        assert (len(ids(fold, "train")), len(ids(fold, "val"))) == (12, 3)


def test_the_division_depends_on_the_ids_and_the_seed_alone():
    assert divide(IMAGES, 4, 1, 0.2, seed=0) == divide(IMAGES, 4, 1, 0.2, seed=0)
    shuffled = divide(IMAGES[::-1], 4, 1, 0.2, seed=0)
    assert ids(shuffled, "test") == ids(divide(IMAGES, 4, 1, 0.2, seed=0), "test")
    assert ids(divide(IMAGES, 4, 1, 0.2, seed=1), "test") != ids(divide(IMAGES, 4, 1, 0.2, seed=0), "test")


def test_without_folds_the_splits_of_the_catalog_stay():
    assert divide(IMAGES, 0, 0, 0.2, seed=0) == IMAGES


def test_official_splits_need_test_images():
    with refused("the catalog has no test images; leave out --official to use folds"):
        divide(IMAGES[:20], 0, 0, 0.2, seed=0)


def test_too_few_images_for_the_folds_are_refused():
    with refused("8 images of train and val cannot be divided: 3 folds need 9"):
        divide(IMAGES[:8], 3, 0, 0.2, seed=0)


def test_a_pilot_uses_the_first_images_of_the_same_division():
    whole = [ids(divide(IMAGES, 4, fold, 0.2, seed=0), "test") for fold in range(4)]
    pilot = [divide(IMAGES, 4, fold, 0.2, seed=0, images=12) for fold in range(4)]
    assert [len(fold) for fold in pilot] == [12] * 4
    for fold, all_of_it in zip(pilot, whole, strict=True):
        assert len(ids(fold, "test")) == 3
        assert ids(fold, "test") < all_of_it


@pytest.fixture
def rows(tmp_path):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(20, 7)) * np.array([9, 5, 1, 0.1, 0.1, 0.1, 0.1]) + 3
    return store(tmp_path / "rows", values.astype(np.float32), LAYERS)


def test_principal_components_are_those_of_the_training_images(rows, tmp_path):
    training = rows.ids[:15]
    assert reduce_rows(rows, training, "pca:2", 0, tmp_path / "p") == 2
    found = Rows.open(tmp_path / "p", "embeddings").read(rows.ids).astype(float)
    known = rows.read(training).astype(float)
    centered = rows.read(rows.ids).astype(float) - known.mean(axis=0)
    _, _, axes = np.linalg.svd(known - known.mean(axis=0))
    expected = centered @ axes[:2].T
    for column in range(2):
        assert abs(np.corrcoef(found[:, column], expected[:, column])[0, 1]) > 0.99999
    # One scale for all: the ratio of the deviations stays.
    assert found[:, 0].std() / found[:, 1].std() == pytest.approx(
        expected[:, 0].std() / expected[:, 1].std(), rel=1e-2
    )


def test_a_random_projection_depends_on_the_seed_alone_and_nearly_keeps_distances(rows, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        reduce_rows(rows, rows.ids, "random:7", seed, tmp_path / name)
    first, again, other = (Rows.open(tmp_path / name).read(rows.ids) for name in "abc")
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)

    def distances(values):
        values = values.astype(float)
        return np.linalg.norm(values[:, None] - values[None], axis=2)[np.triu_indices(20, 1)]

    assert np.corrcoef(distances(first), distances(rows.read(rows.ids)))[0, 1] > 0.7


def test_more_components_than_values_or_images_are_refused(rows, tmp_path):
    with refused("study.project: pca:8 of 7 values and 20 training images; choose a smaller number"):
        reduce_rows(rows, rows.ids, "pca:8", 0, tmp_path / "p")


def test_a_cell_reads_its_own_embedding_of_captions_in_place_of_words(tmp_path, monkeypatch):
    base = STUDY["base"] | {"tokenize.vectors": "features/text/embeddings", "train.cca.text": "rows"}
    factors = {
        "text": {
            "all": {},
            "last": {"embed_text.layers": "last:1"},
            "noise": {"embed_text.layers": ["noise"]},
        }
    }
    path = write_study(tmp_path, base=base, grids={"text": {"set": {}, "factors": factors}}, hypotheses=[])
    monkeypatch.chdir(tmp_path)
    images = Rows.open(tmp_path / "features/small")
    generator = np.random.default_rng(1)
    rows = {
        f"{image}#{number}": np.concatenate([generator.random(3), images.read([image])[0] + number])
        for image in images.ids
        for number in range(2)
    }
    write_store(
        tmp_path / "features/text/activations",
        "caption_features",
        [Layer("noise", 3), Layer("block1", 7)],
        rows,
    )
    study, lines = load_study(path), []
    assert run_study(study, tmp_path / "params.yaml", tmp_path / "out", lines.append) == 9
    scores = {
        each: np.mean(
            [float(line.rsplit("test ")[-1].split(",")[0]) for line in lines if f"text/{each}," in line]
        )
        for each in ("all", "last", "noise")
    }
    assert min(scores["all"], scores["last"]) > scores["noise"] + 50
    assert run_study(study, tmp_path / "params.yaml", tmp_path / "out", lines.append) == 0
