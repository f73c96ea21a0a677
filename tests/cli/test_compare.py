import pytest

from tests.support.commands import fne, refused


@pytest.fixture
def compare(original, monkeypatch):
    monkeypatch.chdir(original)
    return lambda *arguments: fne("compare", *arguments)


def test_settings_metrics_and_queries_are_printed_and_one_seed_is_not_enough(compare):
    result = compare("HEAD~1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Settings that differ"
    assert lines[2].split() == ["train.embed_dim", "256", "32"]
    assert "A: HEAD~1 (1 seed); B: workspace (1 seed)" in lines
    assert result.stdout.count("seed variance unknown") == 11
    assert "by chance the rsum would be " in result.stdout
    assert "Warning: among 6 images chance scores " in result.stdout
    assert "Sentences that are better in B" in result.stdout
    assert "is better\n" not in result.stdout


def test_a_page_is_written_and_replaced_and_no_other_file_is(compare, tmp_path):
    page = tmp_path / "compare.html"
    for _ in range(2):
        result = compare("HEAD~1", "HEAD", "--html", str(page))
        assert result.exit_code == 0, result.output
        assert result.stderr == f"{page}: open {page.as_uri()} in a browser\n"
    text = page.read_text(encoding="utf-8")
    assert "http://" not in text
    assert "https://" not in text
    assert "Seed variance unknown" in text
    page.write_text("mine")
    assert "this command did not write it" in refused("compare", "HEAD~1", "HEAD", "--html", page)
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["HEAD~1", "HEAD~2"],
            "'HEAD~1' and 'HEAD~2' are the same experiment, except for the seed; name two",
        ),
        (["HEAD", "nothing"], "there is no experiment or revision 'nothing'; available: workspace\n"),
    ],
)
@pytest.mark.usefixtures("compare")
def test_wrong_arguments_are_refused(given, message):
    assert refused("compare", *given).startswith(f"Error: {message}")


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_tables_have_other_formats(compare, form):
    result = compare("HEAD~1", "HEAD", "--format", form)
    assert result.exit_code == 0
    assert ("metric,A,A interval,B" if form == "csv" else "| metric | A | A interval |") in result.stdout


def test_three_experiments_are_ranked_with_ties_and_drawn(compare, tmp_path, monkeypatch):
    page = tmp_path / "ranking.html"
    refused = compare("HEAD", "HEAD~1", "HEAD~2")
    assert refused.exit_code == 2
    assert "'HEAD~1' and 'HEAD~2' are the same experiment, except for the seed" in refused.stderr
    monkeypatch.setattr("fne.report.ranking_page.seeds_of", lambda run, all_runs: [run])
    monkeypatch.setattr("fne.experiments.runs.Run.experiment", property(lambda run: run.name))
    result = compare("HEAD", "HEAD~1", "HEAD~2", "--html", str(page))
    assert result.exit_code == 0, result.output
    assert "of 3 pairs are separated at 95%, after Holm's correction" in result.stdout
    assert {line.split()[0] for line in result.stdout.splitlines()} >= {"HEAD", "HEAD~1", "HEAD~2"}
    text = page.read_text()
    assert "Which experiments can be told apart?" in text
    assert text.count("<circle") == 3
    # It wrote the file, so it may replace it.
    assert compare("HEAD", "HEAD~1", "--html", str(page)).exit_code == 0
