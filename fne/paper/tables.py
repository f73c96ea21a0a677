"""The printed rows of Tables 2 to 5."""

from dataclasses import dataclass

from fne.paper.data import load

Numbers = tuple[float | None, ...]  # R@1, R@5, R@10 and median rank, for annotation and then for retrieval

RECALLS = (0, 1, 2, 4, 5, 6)
RESULTS = (2, 3, 4)
STARTS = 5


@dataclass(frozen=True)
class Row:
    """A row of Table 2, 3 or 4; None where the paper prints a dash."""

    model: str
    numbers: Numbers
    notes: list[str]
    is_ours_to_run: bool  # a method of the paper itself, and not a result it quotes


@dataclass(frozen=True)
class Starts:
    """A row of Table 5: how many of the runs started."""

    model: str
    learning_rate: float
    margin: float
    absolute: bool
    started: int
    runs: int
    notes: list[str]


def rows(number: int) -> list[Row]:
    """Return the rows of Table 2, 3 or 4, in the order of the paper."""
    table = load(f"table{number}")
    texts = table["notes"] | table["errata"]
    return [
        Row(
            row["model"],
            (*row["annotation"], *row["retrieval"]),
            [texts[note] for note in (*row.get("notes", []), *row.get("errata", []))],
            row["group"] == "paper",
        )
        for row in table["rows"]
    ]


def starts() -> list[Starts]:
    """Return the rows of Table 5."""
    table = load(f"table{STARTS}")
    return [
        Starts(
            row["model"],
            row["learning_rate"],
            row["margin"],
            row["absolute"],
            row["started"],
            row["runs"],
            [table["errata"][note] for note in row.get("errata", [])],
        )
        for row in table["rows"]
    ]


def sum_of_recalls(numbers: Numbers) -> float | None:
    """Return the sum of the six recalls, where all six are printed."""
    recalls = [numbers[position] for position in RECALLS]
    known = [recall for recall in recalls if recall is not None]
    return sum(known) if len(known) == len(recalls) else None
