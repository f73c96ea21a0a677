"""The row of the paper that a run may stand beside, by what the run recorded about itself."""

from collections.abc import Iterable

from fne.paper.data import load
from fne.paper.measured import DIRECTIONS, KEYS, measured
from fne.paper.rule import Method, belongs, dataset_of
from fne.paper.runs import Run
from fne.paper.tables import RESULTS, Row, rows
from fne.report.facts import settings_of
from fne.report.results import Printed
from fne.store.arrays import Arrays
from fne.store.catalog import SPLITS, Captioned
from fne.store.lineage import Artifact

# The sections of params.yaml that a method of the paper sets, and the artifacts that record them.
RECORDED = {"embed": "embeddings", "tokenize": "tokens", "train": "model"}


def printed_row(metrics: bytes, ranks: Artifact, captioned: Iterable[Captioned]) -> Printed | None:
    """Return what the paper printed for the same experiment, if it did; see `fne.paper.rule`.

    Args:
        metrics: the content of the metrics file.
        ranks: the ranks of the evaluation, whose lineage tells what was run.
        captioned: the catalog.
    """
    records = list(captioned)
    counts = {split: [record for record in records if record.split == split] for split in SPLITS}
    run = Run(
        name=ranks.name,
        settings={section: settings_of(ranks.lineage, name) for section, name in RECORDED.items()},
        measured=measured(metrics),
        started=None,
        hashes={},
        ranks=Arrays(ranks, {}),
        counts={
            split: (len(found), sum(len(record.captions) for record in found))
            for split, found in counts.items()
        },
    )
    dataset = dataset_of(run)
    method = belongs(run, dataset) if dataset else None
    if method is None:
        return None
    number = next(number for number in RESULTS if load(f"table{number}")["dataset"] == method.dataset)
    found = [row for row in rows(number) if row.model == method.name and row.is_ours_to_run]
    return _printed(number, method, found[0]) if found else None


def _printed(number: int, method: Method, row: Row) -> Printed:
    title = f"{method.name} in Table {number} ({load(f'table{number}')['title']})"
    figures = [
        {key: value for key, value in zip(KEYS, half, strict=True) if value is not None}
        for half in (row.numbers[: len(KEYS)], row.numbers[len(KEYS) :])
    ]
    return Printed(
        f"{title}, settings following the {method.following}",
        [*row.notes],
        dict(zip(DIRECTIONS, figures, strict=True)),
    )
