import json

import pytest
from click.testing import CliRunner

from benchmarks.captioning_study import CLAIMS, SYSTEMS, main, read_runs
from fne.store.catalog import Captioned, write_captions

REFERENCES = {
    "a": ["a dog runs in the snow", "a brown dog is running"],
    "b": ["two men play soccer", "men playing a ball game"],
    "c": ["a red car on the street", "the car is red"],
}
CONSENSUS = {"a": "a dog", "b": "a ball", "c": "a car"}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data").mkdir()
    records = [Captioned(image, "test", captions, []) for image, captions in REFERENCES.items()]
    records.append(Captioned("d", "train", ["a dog", "a cat sleeps"], []))
    write_captions(tmp_path / "data/captions.jsonl", records)
    return tmp_path


def run_of(system: str, seed: int, captions: dict[str, str], rows: str = "conv5_3") -> str:
    written = {str(beam): captions for beam in (1, 3, 5, 7)}
    return json.dumps(
        {"rows": rows, "system": system, "seed": seed, "consensus": CONSENSUS, "captions": written}
    )


def show(project, *lines):
    (project / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = CliRunner().invoke(main, ["show", str(project), str(project / "runs.jsonl")])
    assert shown.exit_code == 0, shown.output
    return shown.output.splitlines()


def test_systems_are_scored_by_beam_beside_the_consensus_of_the_same_rows(project):
    perfect = {image: captions[0] for image, captions in REFERENCES.items()}
    lines = show(project, run_of("S-CNN-RNN", 0, perfect), run_of("S-CNN-RNN", 1, CONSENSUS))
    floor, first = lines[2], lines[3]
    assert floor.startswith("| conv5_3 | consensus of 30 neighbors |  |  | ")
    cells = [each.strip() for each in first.strip("|").split("|")]
    assert cells[:4] == ["conv5_3", "S-CNN-RNN", "2", "1"]
    of_each = [float(each) for each in cells[5].split()]
    assert float(cells[4]) == pytest.approx(sum(of_each) / 2, abs=1e-3)
    # The second seed writes the floor itself, so half of the first seed's advantage is left.
    assert float(cells[6].split()[0]) == pytest.approx((of_each[0] - of_each[1]) / 2, abs=1e-3)
    assert len([line for line in lines if "| S-CNN-RNN |" in line]) == 4


def test_a_comparison_uses_the_seeds_that_both_systems_have(project):
    perfect = {image: captions[0] for image, captions in REFERENCES.items()}
    lines = show(
        project,
        run_of("NIC-F-state", 0, CONSENSUS),
        run_of("NIC-F-state", 1, CONSENSUS),
        run_of("S-CNN-RNN", 1, perfect),
    )
    (line,) = [line for line in lines if line.startswith("| concepts against the image row")]
    interval, of_each = (each.strip() for each in line.strip("|").split("|")[3:5])
    assert interval.split()[0] == of_each  # one seed in common
    assert float(of_each) > 0


def test_claims_name_systems_that_can_be_run():
    assert {system for claim in CLAIMS for _, system in (claim.a, claim.b)} <= set(SYSTEMS)


def test_a_file_that_does_not_exist_has_no_runs(tmp_path):
    assert read_runs([tmp_path / "none.jsonl"]) == []
