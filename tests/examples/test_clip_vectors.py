import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from examples.clip_vectors import main
from fne.cli import main as fne
from fne.store.rows import Rows
from stages.catalog import main as catalog
from stages.render import main as render
from tests.support.projects import change_params
from tests.support.stages import run
from tests.support.text_networks import TINY_CLIP

open_clip = pytest.importorskip("open_clip", reason="open_clip is not installed: pip install -e '.[clip]'")

__all__ = ["run"]


def invoke(command, *arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_both_sides_of_a_catalog_are_computed_imported_and_evaluated(run, tmp_path):
    Path("tiny.json").write_text(json.dumps(TINY_CLIP))
    change_params(tmp_path, {"render": {"images": 20, "side": 64, "val_share": 0.2, "test_share": 0.3}})
    invoke(render, "data/demo", "data/demo_judgments.txt")
    invoke(catalog, "data/images.jsonl", "data/captions.jsonl", "data/rejects.csv", "data/catalog.json")
    invoke(main, "--configuration", "tiny.json")
    with np.load("clip_images.npz") as file:
        assert file["features"].shape == (20, 12)
        assert np.allclose(np.linalg.norm(file["features"], axis=1), 1, atol=1e-5)
    invoke(fne, "import", "clip_images.npz")
    imported = invoke(fne, "import", "--captions", "clip_captions.npz").output
    assert "all 100 captions of data/captions.jsonl have a row" in imported
    torch.manual_seed(0)
    model = open_clip.create_model("tiny").eval()
    text = json.loads(Path("data/captions.jsonl").read_text().splitlines()[1])
    with torch.inference_mode():
        expected = model.encode_text(open_clip.get_tokenizer("tiny")([text["captions"][2]]), normalize=True)
    found = Rows.open(Path("features/imported_captions")).read([f"{text['id']}#2"])
    assert np.allclose(found, expected.numpy(), atol=1e-5)
    stores = {"images": "features/imported", "captions": "features/imported_captions"}
    change_params(tmp_path, {"imported": stores})
    result = run("evaluate_imported")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("metrics/imported.json").read_text())["test_full"]["images"] == 6
