import subprocess
import sys

import pytest
import torch

from fne.activations.engines import ENGINES, Job, Recipe, compute_here, here
from fne.activations.processor import processor_name
from fne.activations.reading import ImageFiles
from fne.core import runtime as core
from tests.activations.samples import draw, red_extractor, redness
from tests.core.test_runtime import runtime


def test_the_engines_are_those_that_the_parameters_admit():
    assert tuple(ENGINES) == core.ENGINES


def test_rows_come_in_batches_with_their_positions_and_the_processor(tmp_path):
    images = [draw(tmp_path, number) for number in range(5)]
    extractor = red_extractor()
    job = Job(ImageFiles(images, tmp_path, extractor.resize), extractor, batch=2, workers=0, todo=5)
    done = list(compute_here(job, iter([4, 0, 2])))
    assert [each.positions for each in done] == [[4, 0], [2]]
    assert {each.processor for each in done} == {processor_name("cpu")}
    red = [float(row[0]) for each in done for row in each.rows]
    assert red == pytest.approx([redness(4), redness(0), redness(2)], rel=1e-5)


def test_the_local_engine_computes_on_the_device_that_is_asked_for(tmp_path):
    recipe = Recipe(None, tmp_path, runtime(device="cpu"))
    with ENGINES["local"](recipe, print) as engine:
        assert (engine.device, engine.elsewhere) == (torch.device("cpu"), False)
        assert engine.compute is here(torch.device("cpu")).compute


def test_without_the_engine_ray_is_never_imported():
    program = "import sys, stages.extract; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
