"""`fne check`: every fault of a parameter file, before anything is computed."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from fne.activations.algorithms import ALGORITHMS, AUTO
from fne.activations.backbones import BACKBONES
from fne.activations.settings import Extract
from fne.activations.weights import Torchvision, parse_weights
from fne.captions.settings import Tokenize
from fne.core.errors import InputError
from fne.core.params import Section, load_params, not_one_of, parse_section
from fne.core.runtime import Runtime
from fne.datasets.location import file_fault
from fne.datasets.root import is_annotation_file
from fne.datasets.settings import Catalog
from fne.datasets.world import Render
from fne.features.layers import kept_layers
from fne.features.settings import Embed
from fne.features.source import EXTRACTED
from fne.matching.settings import Train
from fne.report.settings import Report
from fne.retrieval.settings import Evaluate
from fne.store.catalog import read_captions
from fne.store.layout import MANIFEST

SECTIONS: dict[str, type[Section]] = {
    "render": Render,
    "catalog": Catalog,
    "extract": Extract,
    "embed": Embed,
    "tokenize": Tokenize,
    "train": Train,
    "evaluate": Evaluate,
    "report": Report,
    "runtime": Runtime,
}
DEMO_ROOT = "data/demo"


def check_params(path: Path) -> dict[str, Any]:
    """Validate a parameter file and return its sections.

    Raises:
        InputError: naming every fault of every section.
    """
    params = load_params(path)
    faults = _unknown_sections(params)
    sections: dict[str, Any] = {}
    for name, schema in SECTIONS.items():
        sections[name], found = parse_section(params, name, schema)
        if found:
            faults.append(f"section '{name}': {'; '.join(found)}")
    faults += _missing_files(path.parent, sections["catalog"], sections["extract"])
    faults += _missing_source(path.parent, sections["embed"])
    faults += _missing_layer(sections["extract"], sections["embed"])
    faults += _unknown_algorithm(sections["runtime"])
    if faults:
        raise InputError("\n".join(f"{path}: {fault}" for fault in faults))
    return sections


def check_demo(path: Path, sections: dict[str, Any]) -> None:
    """Refuse parameters that do not name the embedded data set."""
    root = sections["catalog"].root
    if root != DEMO_ROOT:
        raise InputError(
            f"{path}: catalog.root is '{root}', not the embedded data set; type `dvc repro` to run your own "
            f"data set, or set catalog.root to {DEMO_ROOT} for the demo"
        )


def check_splits(path: Path, sections: dict[str, Any], captions: Path) -> None:
    """Look whether training and evaluation will find their images, before hours of extraction.

    A collection without captions is fine: its embeddings can be made.

    Raises:
        InputError: if another `evaluate.split` would be possible.
    """
    splits = {record.split for record in read_captions(captions)[0] if record.captions}
    chosen = sections["evaluate"].split
    if splits and "val" not in splits:
        warning = "no captioned image is in split 'val', which `train` needs to choose its epoch"
        click.echo(f"Warning: {warning}", err=True)
    if "val" in splits and chosen not in splits:
        raise InputError(
            f"{path}: evaluate.split is '{chosen}', but the catalog has captions only in "
            f"{', '.join(sorted(splits))}; use `-S evaluate.split=val`"
        )


def _unknown_sections(params: dict[str, Any]) -> list[str]:
    faults = []
    for name in params:
        if name not in SECTIONS:
            close = get_close_matches(str(name), SECTIONS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known sections: {', '.join(SECTIONS)}"
            faults.append(f"unknown section '{name}' ({hint})")
    return faults


def _missing_files(folder: Path, catalog: Catalog | None, extract: Extract | None) -> list[str]:
    faults = []
    # The demo's folder is drawn by the first stage.
    if catalog and catalog.root != DEMO_ROOT:
        fault = _root_fault(folder / catalog.root, catalog)
        faults += [f"section 'catalog': root: {fault}"] * bool(fault)
    if extract:
        weights = folder / extract.weights
        if not weights.is_file():
            faults.append(
                f"section 'extract': weights: there is no file '{extract.weights}'; "
                "use weights/random.yaml, weights/imagenet.yaml or a weights file of your own"
            )
        elif weights.suffix in (".yaml", ".yml"):
            try:
                named = parse_weights(weights)
            except InputError as error:
                faults.append(f"section 'extract': weights: {error.message}")
            else:
                if isinstance(named, Torchvision) and extract.backbone not in named.sha256:
                    lacking = (
                        f"{weights} names none for {extract.backbone}, only for {', '.join(named.sha256)}"
                    )
                    faults.append(f"section 'extract': weights: {lacking}")
    return faults


def _root_fault(root: Path, catalog: Catalog) -> str | None:
    if not root.exists():
        return f"there is no folder or file '{catalog.root}'; name your data set's folder"
    fault = file_fault(catalog.format, catalog.annotations) if is_annotation_file(root) else None
    return f"'{catalog.root}' {fault}" if fault else None


def _missing_source(folder: Path, embed: Embed | None) -> list[str]:
    if not embed or embed.source == EXTRACTED or (folder / embed.source / MANIFEST).is_file():
        return []
    return [
        f"section 'embed': source: there is no store in '{embed.source}'; "
        f"use {EXTRACTED} or the folder of a store that `fne import` wrote"
    ]


def _missing_layer(extract: Extract | None, embed: Embed | None) -> list[str]:
    """Look for layers that the backbone will not give; those of an imported store are its own."""
    if not extract or not embed or embed.source != EXTRACTED:
        return []
    layers = [tap.layer for tap in BACKBONES[extract.backbone].taps]
    if embed.kind == "layer" and embed.layer not in layers:
        return [
            f"section 'embed': layer: {not_one_of(embed.layer, layers)}, the layers of {extract.backbone}"
        ]
    try:
        kept_layers(layers, embed.layers)
    except ValueError as error:
        return [f"section 'embed': layers: {extract.backbone} {error}"]
    return []


def _unknown_algorithm(runtime: Runtime | None) -> list[str]:
    if not runtime or runtime.algorithm in (AUTO, *ALGORITHMS):
        return []
    return [f"section 'runtime': algorithm: {not_one_of(runtime.algorithm, (AUTO, *ALGORITHMS))}"]
