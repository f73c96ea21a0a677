from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as benchmarks
from benchmarks.timing import Ratio

TABLE = f"# Title\n\n{benchmarks.BEGIN}{benchmarks.END}\nText.\n"


@pytest.fixture
def readme(tmp_path, monkeypatch):
    """Give the benchmarks a README of their own, and ratios that are known."""
    path = tmp_path / "README.md"
    path.write_text(TABLE)
    monkeypatch.setattr(benchmarks, "README", path)
    monkeypatch.setattr(benchmarks, "machine", lambda: "two cores, load 0.1")
    known = {
        name: benchmarks.Benchmark(lambda found=found: found, f"our {name}", "theirs", 2.5)
        for name, found in (("one", Ratio(3.0, 3.25)), ("two", Ratio(7.0, 8.0)))
    }
    monkeypatch.setattr(benchmarks, "BENCHMARKS", known)
    return path


def rows(path: Path) -> list[str]:
    table = path.read_text().split(benchmarks.BEGIN)[1].split(benchmarks.END)[0]
    return [line for line in table.splitlines() if line.startswith("| `")]


def run(*names):
    done = CliRunner().invoke(benchmarks.main, names)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", benchmarks.programs())
def test_every_program_runs_tiny_to_its_last_line(name, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import_module(f"benchmarks.{name}").tiny(tmp_path)
    assert capfd.readouterr().out.strip()


def test_a_module_that_is_not_run_tiny_holds_only_what_others_import():
    folder = Path(benchmarks.__file__).parent
    sources = {path.stem: path.read_text() for path in folder.glob("*.py")}
    assert sources.keys() == {*benchmarks.programs(), *benchmarks.SHARED}
    for name in {*benchmarks.SHARED} - {"__init__", "__main__"}:
        assert "__main__" not in sources[name]
        assert any(f"from benchmarks.{name} import" in each for each in sources.values())


def test_all_benchmarks_write_a_table_with_both_ratios_the_opponent_the_goal_and_the_machine(readme):
    assert run().splitlines()[-1] == "two: 7.00"
    one, _ = rows(readme)
    assert one == "| `one` | 3.00 | 3.25 | our one | theirs | 2.5 | two cores, load 0.1 |"
    assert readme.read_text().startswith("# Title\n")
    assert readme.read_text().endswith(f"{benchmarks.END}\nText.\n")


def test_a_named_benchmark_updates_its_own_row_only(readme, monkeypatch):
    run()
    before = rows(readme)
    monkeypatch.setitem(
        benchmarks.BENCHMARKS, "two", benchmarks.BENCHMARKS["two"]._replace(run=lambda: Ratio(9.0, 9.5))
    )
    run("two")
    assert rows(readme) == [before[0], before[1].replace("7.00 | 8.00", "9.00 | 9.50")]


def test_a_row_that_no_benchmark_can_repeat_goes(readme):
    readme.write_text(TABLE.replace(benchmarks.END, f"| `gone` | 9.00 |\n{benchmarks.END}"))
    run("one")
    assert [line.split()[1] for line in rows(readme)] == ["`one`"]


def test_an_unknown_name_is_refused_with_the_names_that_there_are(readme):
    done = CliRunner().invoke(benchmarks.main, ["tow"])
    assert done.exit_code == 2
    assert "no benchmark 'tow'; there are one, two" in done.output
    assert readme.read_text() == TABLE


def test_the_readme_has_rows_of_benchmarks_that_exist():
    found = [line.split("`")[1] for line in rows(benchmarks.README)]
    assert found == [name for name in benchmarks.BENCHMARKS if name in found]
