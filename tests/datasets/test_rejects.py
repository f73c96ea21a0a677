import csv

from fne.datasets.rejects import Reject, write_rejects


def test_captions_of_others_are_no_formulas_in_the_table(tmp_path):
    write_rejects(tmp_path / "rejects.csv", [Reject("-a.jpg", "@b.jpg", "train", '=HYPERLINK("x")', "empty")])
    with (tmp_path / "rejects.csv").open(newline="") as file:
        assert list(csv.reader(file))[1] == ["'-a.jpg", "'@b.jpg", '\'=HYPERLINK("x")', "empty"]
