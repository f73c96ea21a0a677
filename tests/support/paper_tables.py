"""Small DVC projects with finished runs; their only stage writes random results instead of training."""

import shutil
from pathlib import Path

from ruamel.yaml import YAML

from fne.experiments.presets import preset
from tests.support.imports import ROOT
from tests.support.projects import change_params, commit, dvc, new_repository

STAGE = """
import hashlib
import json
from pathlib import Path
import numpy as np
from fne.core.settings import load_params, load_section
from fne.evaluation.metrics.recall import chance_of_rsum
from fne.experiments.effective_settings import DEFAULT, SECTIONS, settings_of, write_settings
from fne.store.arrays import write_arrays
from fne.store.checksums import write_metrics
from fne.store.catalog import Captioned, write_captions

file = Path("params.yaml")
params = settings_of(load_params(file), "params.yaml")
sections = {name: load_section(file, name, schema) for name, schema in SECTIONS.items()}
write_settings(Path("metrics/settings.json"), file, DEFAULT, sections, Path(".fne"))
facts = json.loads(Path("facts.json").read_text())
splits = facts["splits"]
records = [
    Captioned(f"{split}{number:05}", split, tuple("abcde"), ())
    for split, count in splits.items() for number in range(count)
]
write_captions(Path("data/captions.jsonl"), records)
images = splits["test"]
seed = params["train"]["seed"]
generator = np.random.default_rng((seed, params["train"]["embed_dim"]))
ranks = {"image_ranks": generator.integers(1, 20, images), "caption_ranks": generator.integers(1, 20, 5 * images)}
ids = [record.id for record in records if record.split == "test"]
arrays = {
    "image_ids": ids,
    "caption_ids": [f"{name}#{number}" for name in ids for number in range(5)],
    "caption_image": np.repeat(np.arange(images), 5),
    "folds": np.zeros(images, dtype=np.int64),
    **ranks,
}
file = Path(params["extract"]["weights"])
digest = facts["weights"] if file.suffix == ".yaml" else hashlib.sha256(file.read_bytes()).hexdigest()
keys = ("backbone", "activations", "resize", "crops", "views", "layers", "precision")
extract = {key: params["extract"][key] for key in keys}
lineage = {
    "activations": {"digest": "a", "settings": {**extract, "extractor": 1}},
    "weights": {"digest": digest, "settings": {"kind": facts["kind"], "name": "IMAGENET1K_V1"}},
    "images": {"digest": "1" * 64, "settings": {}},
    "captions": {"digest": "2" * 64, "settings": {}},
}
write_arrays(Path("metrics/ranks.h5"), "ranks", arrays, params["evaluate"], lineage)
def summary(values):
    recalls = {f"R@{k}": 100 * float(np.mean(values <= k)) for k in (1, 5, 10)}
    return {**recalls, "median_rank": float(np.median(values)), "mean_rank": float(np.mean(values))}
results = {
    "image_to_text": summary(ranks["image_ranks"]), "text_to_image": summary(ranks["caption_ranks"]),
    "rsum": 0.0, "chance": chance_of_rsum(np.full(images, 5)), "images": images, "captions": 5 * images, "started": seed % 2 == 0,
}
write_metrics(Path("metrics/retrieval.json"), {f"test_{params['evaluate']['protocol']}": results})
"""

PIPELINE = """
stages:
  evaluate:
    cmd: python stage.py
    params: [catalog, extract, embed, tokenize, train, evaluate]
    deps: [stage.py, facts.json, "${extract.weights}"]
    outs:
      - data/captions.jsonl
      - metrics/ranks.h5
      - metrics/settings.json:
          cache: false
    metrics:
      - metrics/retrieval.json:
          cache: false
"""

FLICKR8K = '{"splits": {"train": 6000, "val": 1000, "test": 1000}, "weights": "caffe", "kind": "file"}'
DEMO = '{"splits": {"train": 12, "val": 4, "test": 6}, "weights": "drawn", "kind": "random"}'


def project(folder: Path, name: str, dataset: str, facts: str = DEMO) -> Path:
    """Create a project with the parameters of a preset."""
    (folder / "weights").mkdir(parents=True)
    for file in ("params.yaml", "weights/random.yaml"):
        shutil.copy(ROOT / file, folder / file)
    (folder / "stage.py").write_text(STAGE)
    (folder / "dvc.yaml").write_text(PIPELINE)
    (folder / "facts.json").write_text(facts)
    (folder / ".gitignore").write_text("/.fne/\n/data/captions.jsonl\n/metrics/ranks.h5\n")
    change_params(folder, sections(name, dataset))
    new_repository(folder)
    dvc(folder, "init", "--quiet")
    commit(folder)
    return folder


def sections(name: str, dataset: str, following: str = "paper") -> dict[str, dict[str, object]]:
    """Return a preset as the sections of a parameter file."""
    found: dict[str, dict[str, object]] = {}
    for key, value in preset(name, dataset, following).overrides.items():
        section, own = key.split(".", 1)
        found.setdefault(section, {})[own] = value
    return found


def run(folder: Path, *overrides: str) -> None:
    """Change parameters, run the pipeline in the work tree, and commit it."""
    for override in overrides:
        key, value = override.split("=")
        section, own = key.split(".", 1)
        change_params(folder, {section: {own: YAML(typ="safe").load(value)}})
    dvc(folder, "repro", "--quiet")
    commit(folder)
