import pytest
import torch

from fne.activations import processor
from fne.activations.processor import note, origin, processor_name, processors_of, read_notes


@pytest.fixture(autouse=True)
def forgotten():
    processor_name.cache_clear()
    yield
    processor_name.cache_clear()


def test_a_cpu_is_named_by_its_model_and_what_it_can_do(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: x\n")
    assert processor_name("cpu") == f"Some CPU @ 2 GHz, {torch.backends.cpu.get_cpu_capability()}"


def test_a_machine_that_does_not_name_its_cpu_gives_the_architecture(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(processor.platform, "processor", lambda: "")
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")
    assert processor_name("cpu").startswith("aarch64, ")


def test_a_gpu_is_named_by_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    assert processor_name("cuda") == "Some GPU"


def test_the_last_note_about_a_row_counts(tmp_path):
    for digest, name in (("01", "a b"), ("02", "a b"), ("01", "c")):
        note(tmp_path / "notes", digest, name)
    assert read_notes(tmp_path / "notes") == {"01": "c", "02": "a b"}


def test_half_a_note_spoils_no_other(tmp_path):
    note(tmp_path / "notes", "01", "a")
    with (tmp_path / "notes").open("ab") as file:
        file.write(b"\n02 half a nam")
    note(tmp_path / "notes", "03", "b")
    notes = read_notes(tmp_path / "notes")
    assert (notes["01"], notes["03"]) == ("a", "b")


def test_no_notes_are_no_fault(tmp_path):
    assert read_notes(tmp_path / "none") == {}


@pytest.mark.parametrize("processors", [{"1": "a", "2": "a"}, {"1": "a", "2": "b"}, {"2": "b"}, {}])
def test_what_a_store_says_in_short_can_be_taken_apart_again(processors):
    ids = {"x": "1", "y": "2", "z": "2"}
    expected = {row_id: processors.get(digest, "unknown") for row_id, digest in ids.items()}
    assert processors_of(origin(ids, processors), ids) == expected


def test_one_processor_takes_one_name_and_an_empty_store_none():
    assert origin({"x": "1", "y": "1"}, {"1": "a"}) == "a"
    assert origin({}, {}) == "unknown"
