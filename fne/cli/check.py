"""`fne check`: validate a parameter file before anything is computed.

All faults of all sections are reported in one message.
"""

import tempfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from fne.core.dvc import DvcError, apply_overrides, split_sweeps
from fne.core.effective_settings import flattened
from fne.core.errors import InputError, LinesError
from fne.core.options import params_option
from fne.core.params import Runtime, Section, load_params, not_one_of, parse_section
from fne.core.terminal import say
from fne.datasets.demo.dataset import Render
from fne.datasets.location import file_fault
from fne.datasets.read import Catalog
from fne.describing.settings import Caption, Tag, TrainCaptioner, TrainTagger
from fne.evaluation.imported import Imported
from fne.evaluation.protocols import Evaluate
from fne.experiments.comparable import DEMO_ROOT
from fne.extraction.extractor import ALGORITHMS, AUTO, Extract
from fne.extraction.forward_pass import refuse_unfitting
from fne.extraction.networks import find_backbone
from fne.extraction.timm_networks import is_timm
from fne.extraction.weights import (
    File,
    Torchvision,
    named_file,
    parse_weights,
    read_header,
    says_its_input,
)
from fne.features.embeddings import ALL, OF_VIEWS, ONE_LAYER, Embed, kept_layers
from fne.features.write_embeddings import EXTRACTED
from fne.finetuning.settings import OFF, WITH_GRADIENT, Finetune, kind_fault
from fne.finetuning.tuned_network import trained_taps
from fne.matching.settings import Train, unused_vectors_message
from fne.report.page import Report
from fne.store.catalog import is_annotation_file
from fne.store.layout import MANIFEST
from fne.text.caption_vectors import is_caption_store
from fne.text.vocabulary import Tokenize
from fne.text.word_vectors import NO_VECTORS, is_no_vectors

SECTIONS: dict[str, type[Section]] = {
    "render": Render,
    "catalog": Catalog,
    "extract": Extract,
    "embed": Embed,
    "tokenize": Tokenize,
    "train": Train,
    "finetune": Finetune,
    "imported": Imported,
    "train_tagger": TrainTagger,
    "tag": Tag,
    "train_captioner": TrainCaptioner,
    "caption": Caption,
    "evaluate": Evaluate,
    "report": Report,
    "runtime": Runtime,
}


@click.command()
@params_option
@click.option(
    "--demo", is_flag=True, help="Also refuse parameters of another data set than the embedded one."
)
@click.option(
    "-S",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Check with this override, as for `dvc exp run`; repeatable.",
)
@click.option("--show", is_flag=True, help="Also print the settings that apply to the training.")
def check(params: Path, demo: bool, overrides: tuple[str, ...], show: bool) -> None:
    """Validate all parameters before anything is computed.

    Reports every unknown key, wrong type, unknown variant and missing file, with the allowed
    values. The stage `check` does the same at the start of `dvc repro` and `dvc exp run`.

    \b
      fne check                                               the parameter file
      fne check -S train.loss=max_hinge -S train.margin=0.1   overrides, before they are run
      fne check --show                                        chosen variants and their keys
    """
    if overrides and demo:
        raise click.UsageError("give either -S or --demo")
    if overrides:
        check_overrides(params, overrides, show)
        return
    sections = check_params(params)
    if demo:
        check_demo(params, sections)
    say(f"{params}: {len(sections)} sections, all valid")
    if show:
        say(applied_settings(sections["train"]))


def check_params(path: Path, early: bool = False) -> dict[str, Any]:
    """Validate a parameter file and return its sections.

    Args:
        early: whether the store that `embed.source` names may still be made, which is only warned about.
    """
    params = load_params(path)
    faults = _unknown_sections(params)
    sections: dict[str, Any] = {}
    for name, schema in SECTIONS.items():
        sections[name], found = parse_section(params, name, schema)
        if found:
            faults.append(f"section '{name}': {'; '.join(found)}")
    faults += _missing_files(path.parent, sections["catalog"], sections["extract"])
    faults += _missing_vectors(path.parent, sections["tokenize"])
    faults += _no_fixed_words(sections["tokenize"], sections["train"])
    faults += _unused_vectors(path.parent, sections["tokenize"], sections["train"])
    faults += _too_few_positions(sections["tokenize"], sections["train"])
    missing = _missing_source(path.parent, sections["embed"])
    faults += missing * (not early)
    faults += _missing_layer(sections["extract"], sections["embed"])
    faults += _untunable(sections)
    faults += _unknown_algorithm(sections["runtime"])
    if faults:
        raise LinesError("\n".join(f"{path}: {fault}" for fault in faults))
    for fault in missing:
        say(f"Warning: {path}: {fault}", err=True)
    return sections


def check_overrides(path: Path, overrides: Sequence[str], show: bool) -> None:
    """Check a parameter file with overrides, including all combinations of a sweep.

    The file is not changed.
    """
    faults = _unknown_keys(load_params(path), overrides)
    if faults:
        raise LinesError("\n".join(f"{path}: {fault}" for fault in faults))
    try:
        for sweep in split_sweeps(path, overrides):
            named = f"{path} with {' '.join(sweep)}"
            # In the same folder, because the paths in the file are relative to it.
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".check-", suffix=".yaml") as file:
                changed = path.with_name(Path(file.name).name)
                changed.write_bytes(path.read_bytes())
                apply_overrides(changed, sweep)
                try:
                    sections = check_params(changed)
                except InputError as error:
                    raise LinesError(error.message.replace(str(changed), named)) from None
            say(f"{named}: all valid")
            if show:
                say(applied_settings(sections["train"]))
    except DvcError as error:
        raise InputError(f"-S: {error}") from None


def applied_settings(train: Train) -> str:
    """Return the settings of the training that apply, one line per key, with the names for `-S`."""
    return "\n".join(f"  train.{key}: {value}" for key, value in sorted(flattened(train.applied()).items()))


def check_demo(path: Path, sections: dict[str, Any]) -> None:
    """Refuse parameters of another data set than the embedded one."""
    root = sections["catalog"].root
    if root != DEMO_ROOT:
        raise InputError(
            f"{path}: catalog.root is '{root}', which is not the embedded data set; run `dvc repro` for your "
            f"own data set, or set catalog.root to {DEMO_ROOT} for the demo"
        )


def _unknown_keys(params: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Find overrides of keys that the file does not have, which DVC would refuse without a reason."""
    known = flattened(params)
    faults = []
    for override in overrides:
        key = override.partition("=")[0]
        if key in known or any(each.startswith(f"{key}.") for each in known):
            continue
        same = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
        close = same or get_close_matches(key, known, n=1)
        hint = f" (did you mean {' or '.join(repr(each) for each in close)}?)" if close else ""
        faults.append(f"there is no key '{key}'{hint}")
    return faults


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
    # The stage `render` makes the folder of the demo.
    if catalog and catalog.root != DEMO_ROOT:
        fault = _root_fault(folder / catalog.root, catalog)
        faults += [f"section 'catalog': root: {fault}"] * bool(fault)
    return faults + (_weights_faults(folder / extract.weights, extract) if extract else [])


def _weights_faults(weights: Path, extract: Extract) -> list[str]:
    """Check that a weights file is one, fits the network, and says how its weights expect images."""
    place = "section 'extract': weights:"
    if not weights.is_file():
        return [
            f"{place} no such file '{extract.weights}'; use weights/random.yaml, weights/imagenet.yaml or "
            "your own weights file"
        ]
    try:
        if weights.suffix in (".yaml", ".yml"):
            named = parse_weights(weights)
            if isinstance(named, File):
                _refuse_unfitting(named_file(weights, named), extract)
            if isinstance(named, Torchvision) and extract.backbone not in named.sha256:
                return [
                    f"{place} {weights} has none for {extract.backbone}, only for {', '.join(named.sha256)}"
                ]
            return []
        _refuse_unfitting(weights, extract)
        # The configuration of a network of timm says it.
        if extract.input != AUTO or is_timm(extract.backbone) or says_its_input(weights):
            return []
    except InputError as error:
        return [f"{place} {error.message}"]
    return [
        f"section 'extract': input: {weights} does not say how its weights expect images; set it to "
        "torchvision (RGB, 0..1, mean and deviation of ImageNet) or caffe (BGR, 0..255, mean pixel)"
    ]


def _refuse_unfitting(weights: Path, extract: Extract) -> None:
    header = read_header(weights)
    try:
        known = find_backbone(extract.backbone).names
    except InputError:
        return  # `_missing_layer` says so, as it does for unknown layers
    named = extract.layers if set(extract.layers) <= set(known) else ALL
    refuse_unfitting(extract.backbone, header, named)


def _root_fault(root: Path, catalog: Catalog) -> str | None:
    if not root.exists():
        return f"no such folder or file '{catalog.root}'; use the folder of your data set"
    fault = file_fault(catalog.format, catalog.annotations) if is_annotation_file(root) else None
    return f"'{catalog.root}' {fault}" if fault else None


def _missing_vectors(folder: Path, tokenize: Tokenize | None) -> list[str]:
    if not tokenize or (folder / tokenize.vectors).is_file() or is_caption_store(folder / tokenize.vectors):
        return []
    return [
        f"section 'tokenize': vectors: there is no file '{tokenize.vectors}'; "
        f"use {NO_VECTORS} or a file of word vectors"
    ]


def _no_fixed_words(tokenize: Tokenize | None, train: Train | None) -> list[str]:
    if not tokenize or not train or train.words != "fixed" or not is_no_vectors(tokenize.vectors):
        return []
    return [
        f"section 'train': words: 'fixed' needs word vectors, but tokenize.vectors is '{tokenize.vectors}'; "
        "name a file of word vectors, or use 'learned'"
    ]


def _unused_vectors(folder: Path, tokenize: Tokenize | None, train: Train | None) -> list[str]:
    if not tokenize or not train or is_no_vectors(tokenize.vectors):
        return []
    if is_caption_store(folder / tokenize.vectors):
        return []
    fault = unused_vectors_message(train, tokenize.vectors)
    return [f"section 'tokenize': {fault}"] if fault else []


def _too_few_positions(tokenize: Tokenize | None, train: Train | None) -> list[str]:
    """Find captions that need not fit the positions of a text CNN."""
    if not tokenize or not train or train.method != "steps" or train.text_encoder != "text_cnn":
        return []
    positions = train.text_encoders["text_cnn"].model_dump()["positions"]
    if 1 <= tokenize.longest <= positions:
        return []
    return [
        f"section 'tokenize': longest: text encoder 'text_cnn' has {positions} positions; use 1 to "
        f"{positions}, got {tokenize.longest}"
    ]


def _missing_source(folder: Path, embed: Embed | None) -> list[str]:
    if not embed or embed.source == EXTRACTED or (folder / embed.source / MANIFEST).is_file():
        return []
    return [
        f"section 'embed': source: no row store in '{embed.source}'; "
        f"use {EXTRACTED}, or a store that `fne import` or `fne join` wrote"
    ]


def _missing_layer(extract: Extract | None, embed: Embed | None) -> list[str]:
    """Find layers that the backbone does not have; an imported store has its own layers."""
    if not extract or not embed or embed.source != EXTRACTED:
        return []
    try:
        backbone = find_backbone(extract.backbone)
    except InputError as error:
        return [f"section 'extract': backbone: {error.message}"]
    if extract.layers == ALL:
        layers, whose = [tap.layer for tap in backbone.taps], f"the layers of {extract.backbone}"
        if embed.layer in backbone.names:
            whose += f"; extract '{embed.layer}' with extract.layers=[{embed.layer}]"
    else:
        unknown = [name for name in extract.layers if name not in backbone.names]
        if unknown:
            known = not_one_of(unknown[0], backbone.names)
            return [f"section 'extract': layers: {known}, the layers of {extract.backbone}"]
        layers = [name for name in backbone.names if name in extract.layers]
        whose = "the layers of extract.layers"
    if extract.views == "each" and embed.kind != OF_VIEWS:
        return [
            f"section 'embed': kind: extract.views is 'each', which only kind '{OF_VIEWS}' keeps separately, "
            f"got '{embed.kind}'"
        ]
    if embed.kind in ONE_LAYER:
        if embed.layer not in layers:
            return [f"section 'embed': layer: {not_one_of(embed.layer, layers)}, {whose}"]
        return []
    try:
        kept_layers(layers, embed.layers)
    except ValueError as error:
        return [f"section 'embed': layers: {extract.backbone} {error}"]
    return []


def _untunable(sections: dict[str, Any]) -> list[str]:
    """Find what keeps the image network from being tuned, where it is to be tuned."""
    named = ("catalog", "extract", "embed", "train", "finetune")
    if not all(sections[name] for name in named) or not sections["finetune"].is_on:
        return []
    catalog, extract, embed, train, finetune = (sections[name] for name in named)
    epochs = finetune.epochs[0] if len(finetune.epochs) == 1 else finetune.epochs
    said = f"section 'finetune': epochs is {epochs}, but"
    if catalog.images == "none":
        return [f"{said} catalog.images is 'none': there are no image files; name their folder, or {OFF}"]
    if embed.source != EXTRACTED:
        return [
            f"{said} the embeddings come from {embed.source}: there is no network to train; set "
            f"embed.source to {EXTRACTED}, or {OFF}"
        ]
    if embed.kind not in WITH_GRADIENT:
        return [f"{said} it {kind_fault(embed.kind)}; {OFF} otherwise"]
    if finetune.has_instance_loss and not train.has_instance_loss:
        return [
            "section 'finetune': image_class_weight and text_class_weight need the classifier of an instance "
            "loss in `train`; set both to 0, or train.image_class_weight to 1.0"
        ]
    try:
        trained_taps(extract.backbone, embed.layer, finetune.first)
    except InputError as error:
        return [f"section 'finetune': {error.message.removeprefix('params.yaml: finetune.')}"]
    return []


def _unknown_algorithm(runtime: Runtime | None) -> list[str]:
    if not runtime or runtime.algorithm in (AUTO, *ALGORITHMS):
        return []
    return [f"section 'runtime': algorithm: {not_one_of(runtime.algorithm, (AUTO, *ALGORITHMS))}"]
