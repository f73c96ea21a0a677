"""Effective settings: every key that applies, with its value and whether a file or the code says it.

Each pipeline's stage `check` writes them beside the metrics, and Git keeps them with every experiment. Tables
and comparisons read this record: what a lock file has are only the keys that stood in a file, and defaults
may be others today.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.dvc import bytes_md5, recorded_stages
from fne.core.errors import InputError
from fne.core.files import write_text
from fne.core.settings import Runtime, Section, flattened, load_params, parse_section
from fne.datasets.demo.dataset import Render
from fne.datasets.read import Catalog
from fne.describing.settings import TrainCaptioner, TrainTagger, WriteCaptions, WriteTags
from fne.evaluation.imported import Imported
from fne.evaluation.judgments import Judgments
from fne.evaluation.protocols import Evaluate, ScoreCaptions, ScoreTags
from fne.extraction.settings import Extract
from fne.extraction.text_settings import ExtractText
from fne.features.embeddings import Embed, EmbedText
from fne.finetuning.settings import Finetune, TuneCaptioner, TuneTagger
from fne.matching.settings import Baseline, Train
from fne.probing.settings import Layers
from fne.report.settings import Report
from fne.store.artifact import Contents, Done, Kind, Lines
from fne.store.checksums import (
    DEFAULTS,
    SETTINGS,
    check_metrics,
    parse_settings,
    read_json,
    seal_metrics,
)
from fne.text.vocabulary import Tokenize

PARAMS = "params.yaml"
DEFAULT = "default"  # the pipeline in the root
RUNTIME = "runtime"  # decides no result
# The sections of each pipeline.
PIPELINES: dict[str, dict[str, type[Section]]] = {
    DEFAULT: {
        "render": Render,
        "catalog": Catalog,
        "extract": Extract,
        "embed": Embed,
        "tokenize": Tokenize,
        "train": Train,
        "baseline": Baseline,
        "evaluate": Evaluate,
        "report": Report,
        RUNTIME: Runtime,
    },
    "finetuning": {"finetune": Finetune},
    "tuned_captioning": {"tune_captioner": TuneCaptioner},
    "tuned_tagging": {"tune_tagger": TuneTagger},
    "imported": {"imported": Imported},
    "layers": {"layers": Layers},
    "text_network": {"extract_text": ExtractText, "embed_text": EmbedText},
    "judgments": {"judgments": Judgments, "judgments_page": Report},
    "tagging": {
        "train_tagger": TrainTagger,
        "write_tags": WriteTags,
        "score_tags": ScoreTags,
        "tags_page": Report,
    },
    "captioning": {
        "train_captioner": TrainCaptioner,
        "write_captions": WriteCaptions,
        "score_captions": ScoreCaptions,
        "captions_page": Report,
    },
}
SECTIONS = {name: schema for sections in PIPELINES.values() for name, schema in sections.items()}

Settings = dict[str, dict[str, Any]]  # section: key, nested ones as `-S` names them: value


@dataclass(frozen=True)
class Setting:
    """One key that applies."""

    value: Any
    given: bool  # whether a file says it


def effective(name: str, section: Section, given: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the keys of a section that apply, by their names for `-S`; `given`: what the file has of it."""
    known = flattened(given)
    return {
        f"{name}.{key}": Setting(value, key in known) for key, value in flattened(section.effective()).items()
    }


def pipeline_params(pipeline: str) -> str:
    """Return the parameter file of a pipeline."""
    return PARAMS if pipeline == DEFAULT else f"pipelines/{pipeline}/{PARAMS}"


def pipeline_of_section(section: str) -> str:
    """Return the pipeline that a section belongs to."""
    return next(name for name, sections in PIPELINES.items() if section in sections)


def settings_file(pipeline: str) -> str:
    """Return where a pipeline's effective settings are."""
    return f"metrics/{SETTINGS}" if pipeline == DEFAULT else f"metrics/{pipeline}_{SETTINGS}"


def write_settings(
    path: Path, params: Path, pipeline: str, sections: Mapping[str, Any], scratch: Path
) -> None:
    """Write the effective settings of a pipeline, those of files and those of the code separately.

    DVC removes them before the stage `check`, so the scratch folder keeps a copy for `restore_settings`.
    """
    content = load_params(params)
    found: dict[str, Setting] = {}
    for name in PIPELINES[pipeline]:
        if name != RUNTIME:
            found |= effective(name, sections[name], content.get(name) or {})
    origins = {pipeline_params(pipeline): True, DEFAULTS: False}
    text = seal_metrics(
        {
            origin: {key: each.value for key, each in sorted(found.items()) if each.given is given}
            for origin, given in origins.items()
        }
    )
    write_text(path, text)
    write_text(_kept(scratch, bytes_md5(text.encode())), text)


def restore_settings(path: Path, scratch: Path) -> None:
    """Put back the settings that DVC removed before a stage which then refused, if they are kept."""
    md5 = next((stage.outs[str(path)] for stage in recorded_stages() if str(path) in stage.outs), "")
    kept = _kept(scratch, md5)
    if kept.is_file() and not path.exists() and bytes_md5(kept.read_bytes()) == md5:
        # Not an output of this run: that would be removed again.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kept.read_bytes())


def _kept(scratch: Path, md5: str) -> Path:
    return scratch / "settings" / f"{md5}.json"


def settings_of(params: Mapping[str, Any], place: str) -> Settings:
    """Return the effective settings of the sections of a parameter file, with the defaults of this code.

    `place` names the file in the error about faults.
    """
    found: Settings = {}
    for name, schema in SECTIONS.items():
        section, faults = parse_section(params, name, schema)
        if section is None:
            raise InputError(f"{place}: section '{name}': {'; '.join(faults)}; run `fne check`")
        found[name] = flattened(section.effective())
    return found


def _check(path: Path, done: Done) -> Contents:
    check_metrics(path)
    return Contents()


def _describe(path: Path) -> Lines:
    try:
        found, given = parse_settings(read_json(path))
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}); run `dvc repro --force check`") from None
    listed = [(f"{section}.{key}", value) for section, keys in found.items() for key, value in keys.items()]
    return [
        f"{path}: effective settings; * stands in a parameter file",
        *(f"  {'*' if name in given else ' '} {name}: {value}" for name, value in sorted(listed)),
    ]


KIND = Kind("settings", _check, None, _describe, lambda path: path.name.endswith(SETTINGS))
