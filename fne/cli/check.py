"""`fne check`: validate a parameter file before anything is computed.

All faults of all sections are reported in one message.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from fne.core.dvc import DvcError, apply_overrides, pipeline_files, split_sweeps
from fne.core.errors import InputError, LinesError
from fne.core.options import params_option
from fne.core.settings import (
    Runtime,
    Section,
    file_of,
    flattened,
    load_params,
    not_one_of,
    parameter_files,
    parse_section,
    read_yaml,
)
from fne.core.terminal import say
from fne.datasets.location import file_fault
from fne.datasets.read import Catalog
from fne.experiments.comparable import DEMO_ROOT
from fne.experiments.effective_settings import (
    PARAMS,
    RUNTIME,
    SECTIONS,
    effective,
    pipeline_of_section,
    pipeline_params,
)
from fne.extraction.layers import OUTPUTS, TAPS
from fne.extraction.settings import (
    ALGORITHM_NAMES,
    ALL,
    AUTO,
    Extract,
    File,
    Torchvision,
    is_timm,
    named_file,
    parse_weights,
)
from fne.features.embeddings import OF_VIEWS, ONE_LAYER, Embed, kept_layers
from fne.features.write_embeddings import EXTRACTED
from fne.finetuning.settings import PIPELINES as TUNED_BY
from fne.finetuning.settings import WITH_GRADIENT, kind_fault
from fne.matching.settings import Train, rows_fault, unused_vectors_message
from fne.store.catalog import is_annotation_file
from fne.store.layout import MANIFEST
from fne.text.caption_vectors import is_caption_store
from fne.text.vocabulary import Tokenize
from fne.text.word_vectors import NO_VECTORS, is_no_vectors

WEIGHTS = "section 'extract': weights:"
# What makes rows of captions, and where.
TEXT_PIPELINE = "pipelines/text_network/pipeline.yaml"
MADE_OF_TEXT = ("features/text/activations", "features/text/embeddings")
# The folders that are outputs as a whole, and the files that their stages write.
OUTPUT_FOLDERS = {
    "captions": ("vocabulary.json", "tokens.h5", "vectors.h5"),
    "models/matching": ("model.safetensors", "classifier.safetensors"),
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
@click.option("--show", is_flag=True, help="Print the keys that apply, with values, defaults and meaning.")
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)), metavar="[SECTION]...")
def check(
    params: Path, demo: bool, overrides: tuple[str, ...], show: bool, sections: tuple[str, ...]
) -> None:
    """Validate all parameters before anything is computed.

    Reports every unknown key, wrong type, unknown variant and missing file, with the allowed
    values. The stage `check` does the same at the start of `dvc repro` and `dvc exp run`.

    \b
      fne check                                               the parameter file
      fne check -S train.loss=max_hinge -S train.margin=0.1   overrides, before they are run
      fne check -S ++train.clip=2.0                           a key that stands in no file
      fne check --show train embed                            the keys that apply, and what they mean
    """
    if overrides and demo:
        raise click.UsageError("give either -S or --demo")
    if sections and not show:
        raise click.UsageError("sections are named for --show")
    if overrides:
        check_overrides(params, overrides, show, sections)
        return
    found = check_params(params)
    if demo:
        check_demo(params, found)
    say(f"{params}: {len(found)} sections, all valid")
    if show:
        show_settings(params, found, sections)


def check_params(path: Path, early: bool = False, tuning: Sequence[str] = ()) -> dict[str, Any]:
    """Validate a parameter file and those of the pipelines beside it, and return their sections.

    Args:
        early: whether the store that `embed.source` names may still be made, which is only warned about.
        tuning: the sections that tune the image network, as far as this is wanted.
    """
    params = load_params(path)
    faults = [f"{path}: {fault}" for fault in _unknown_sections(params)]
    sections: dict[str, Any] = {}
    for name, schema in SECTIONS.items():
        sections[name], found = parse_section(params, name, schema)
        if found:
            faults.append(f"{file_of(path, name)}: section '{name}': {'; '.join(found)}")
    catalog, extract, embed, tokenize, train = (
        sections[name] for name in ("catalog", "extract", "embed", "tokenize", "train")
    )
    missing = [*_missing_source(path.parent, embed)]
    general = [
        *_missing_files(path.parent, catalog, extract),
        *_text_faults(path.parent, tokenize, train),
        *missing * (not early),
        *faults_between(sections, tuning),
        *_unknown_algorithm(sections["runtime"]),
        *_missing_keys(path.parent, params),
        *_foreign_files(path.parent),
    ]
    faults += [f"{path}: {fault}" for fault in general]
    if faults:
        raise LinesError("\n".join(faults))
    for fault in missing:
        say(f"Warning: {path}: {fault}", err=True)
    return sections


def check_overrides(path: Path, overrides: Sequence[str], show: bool, named: Sequence[str] = ()) -> None:
    """Check a parameter file with overrides, including all combinations of a sweep.

    No file is changed: what is checked are copies in a folder that has links to all else.
    """
    faults = _unknown_keys(path, overrides)
    if faults:
        raise LinesError("\n".join(f"{path}: {fault}" for fault in faults))
    # Overrides of the fine-tuning are for its pipeline.
    keys = [each.partition("=")[0] for each in overrides]
    tuning = [section for section in TUNED_BY if any(f"{section}." in key for key in keys)]
    by_file: dict[str, list[str]] = {}
    for each in overrides:
        file, key = _split_override(each)
        by_file.setdefault(file or path.name, []).append(key)
    try:
        for sweep in split_sweeps(by_file):
            # As they are given, the keys of the root's file without its name.
            given = [f"{file}:{each}".removeprefix(f"{path.name}:") for file in sweep for each in sweep[file]]
            told = f"{path} with {' '.join(given)}"
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".check-") as folder:
                changed = _copy_of(path, Path(folder))
                for file, values in sweep.items():
                    apply_overrides(Path(folder, file), values)
                try:
                    sections = check_params(changed, tuning=tuning)
                except InputError as error:
                    raise LinesError(
                        error.message.replace(str(changed), told).replace(f"{Path(folder)}/", "")
                    ) from None
                say(f"{told}: all valid")
                if show:
                    show_settings(changed, sections, named)
    except DvcError as error:
        raise InputError(f"-S: {error}") from None


def _copy_of(path: Path, folder: Path) -> Path:
    """Return a copy of a parameter file in a folder that stands for its own, with the pipelines' files."""
    for entry in path.parent.iterdir():
        if entry.name not in (path.name, "pipelines") and not entry.name.startswith(".check-"):
            (folder / entry.name).symlink_to(entry.resolve())
    for file in parameter_files(path):
        target = folder / file.relative_to(path.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return folder / path.name


def show_settings(params: Path, sections: Mapping[str, Any], named: Sequence[str]) -> None:
    """Print the keys that apply, with the default of each that a file changes, and their meaning."""
    content = load_params(params)
    rows = []
    for name in named or [name for name in SECTIONS if name != RUNTIME]:
        defaults = flattened(SECTIONS[name]().model_dump())
        meanings = descriptions(SECTIONS[name])
        for place, setting in effective(name, sections[name], content.get(name) or {}).items():
            key = place.removeprefix(f"{name}.")
            changed = setting.value != defaults[key]
            default = f"default {shown(defaults[key])}" if changed else ""
            rows.append([place, shown(setting.value), default, meanings[key]])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip())


def descriptions(schema: type[Section], prefix: str = "") -> dict[str, str]:
    """Return what each key of a section means, by its name for `-S`."""
    nested = schema.nested()
    found: dict[str, str] = {}
    for key, field in schema.model_fields.items():
        if key in nested:
            found |= descriptions(nested[key], f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = field.description or ""
    return found


def shown(value: Any) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def faults_between(sections: Mapping[str, Any], tuning: Sequence[str]) -> Iterator[str]:
    """Yield what does not fit together in sections that are valid by themselves."""
    tokenize, train, extract, embed = (sections[name] for name in ("tokenize", "train", "extract", "embed"))
    if tokenize and train:
        yield from _unfit_words(tokenize, train)
    if extract and embed and embed.source == EXTRACTED:  # an imported store has its own layers
        yield from _missing_layer(extract, embed)
    for what in ("tags", "captions"):
        write, score = sections[f"write_{what}"], sections[f"score_{what}"]
        if write and score and write.images not in (score.split, "all"):
            yield (
                f"section 'score_{what}': split: '{score.split}' is scored, but write_{what}.images is "
                f"'{write.images}'; use {score.split} or all there"
            )
    for section in tuning:
        if all(sections[name] for name in ("catalog", "extract", "embed", "train", section)):
            yield from _untunable(sections, section)


def check_demo(path: Path, sections: dict[str, Any]) -> None:
    """Refuse parameters of another data set than the embedded one."""
    root = sections["catalog"].root
    if root != DEMO_ROOT:
        raise InputError(
            f"{path}: catalog.root is '{root}', which is not the embedded data set; run `dvc repro` for your "
            f"own data set, or set catalog.root to {DEMO_ROOT} for the demo"
        )


def _split_override(override: str) -> tuple[str, str]:
    """Return the parameter file that an override names, which may be none, and the override of its key."""
    place, equals, value = override.partition("=")
    file, _, key = place.rpartition(":")
    return file, f"{key}{equals}{value}"


def _unknown_keys(path: Path, overrides: Sequence[str]) -> list[str]:
    """Find overrides that DVC would refuse, or take for new keys that no section has."""
    params = load_params(path)
    files = {*params, *_with_blocks(flattened(params))}
    known = {*SECTIONS}
    for name, schema in SECTIONS.items():
        known |= _with_blocks({f"{name}.{key}" for key in flattened(schema().model_dump())})
    faults = []
    for override in overrides:
        file, changed = _split_override(override)
        given = changed.partition("=")[0]
        key = given.lstrip("+~")
        if key not in known:
            if not given.startswith("~"):
                same = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
                close = sorted(same) or get_close_matches(key, known, n=1)
                hint = f" (did you mean {' or '.join(repr(each) for each in close)}?)" if close else ""
                faults.append(f"there is no key '{key}'{hint}")
            continue
        own = pipeline_params(pipeline_of_section(key.partition(".")[0]))
        prefix = "" if own == PARAMS else f"{own}:"
        plus = "" if key in files or given != key else "++"
        if (file or PARAMS) != own and path.name == PARAMS:
            faults.append(f"'{key}' is a key of {own}; use -S {prefix}{plus}{changed}")
        elif plus:
            faults.append(
                f"'{key}' does not stand in a file, and has its default; use -S {prefix}++{changed}"
            )
    return faults


def _with_blocks(keys: Iterable[str]) -> set[str]:
    """Return nested keys with the blocks that they are in, which may be replaced or removed as a whole."""
    return {key.rsplit(".", up)[0] for key in keys for up in range(key.count("."))}


def _unknown_sections(params: dict[str, Any]) -> Iterator[str]:
    for name in [each for each in params if each not in SECTIONS]:
        close = get_close_matches(str(name), SECTIONS, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known sections: {', '.join(SECTIONS)}"
        yield f"unknown section '{name}' ({hint})"


def _missing_files(folder: Path, catalog: Catalog | None, extract: Extract | None) -> Iterator[str]:
    # The stage `render` makes the folder of the demo.
    if catalog and catalog.root != DEMO_ROOT:
        root, place = folder / catalog.root, "section 'catalog': root:"
        if not root.exists():
            yield f"{place} no such folder or file '{catalog.root}'; use the folder of your data set"
        elif is_annotation_file(root) and (fault := file_fault(catalog.format, catalog.annotations)):
            yield f"{place} '{catalog.root}' {fault}"
    if extract:
        try:
            yield from _weights_faults(folder / extract.weights, extract)
        except InputError as error:
            yield f"{WEIGHTS} {error.message}"


def _weights_faults(weights: Path, extract: Extract) -> Iterator[str]:
    """Check that a weights file is one, fits the network, and says how its weights expect images."""
    if not weights.is_file():
        yield (
            f"{WEIGHTS} no such file '{extract.weights}'; use weights/random.yaml, weights/imagenet.yaml or "
            "your own weights file"
        )
    elif weights.suffix not in (".yaml", ".yml"):
        yield from _fitting_faults(weights, extract)
    elif isinstance(named := parse_weights(weights), File):
        yield from _fitting_faults(named_file(weights, named), extract, named=True)
    elif isinstance(named, Torchvision) and extract.backbone not in named.sha256:
        yield f"{WEIGHTS} {weights} has none for {extract.backbone}, only for {', '.join(named.sha256)}"


def _fitting_faults(weights: Path, extract: Extract, named: bool = False) -> Iterator[str]:
    """Check the header of a weights file; `named`: a YAML file names it and says what it expects."""
    from fne.extraction.forward_pass import refuse_unfitting  # torch: slow to import
    from fne.extraction.weights import read_header, says_its_input

    # `_missing_layer` reports an unknown network, and unknown layers.
    with suppress(UnknownNetworkError):
        known = _known_layers(extract.backbone)
        layers = extract.layers if set(extract.layers) <= set(known[0] + known[1]) else ALL
        refuse_unfitting(extract.backbone, read_header(weights), layers)
    # The configuration of a network of timm says how images are fed.
    if not (named or extract.input != AUTO or is_timm(extract.backbone) or says_its_input(weights)):
        yield (
            f"section 'extract': input: {weights} does not say how its weights expect images; set it to "
            "torchvision (RGB, 0..1, mean and deviation of ImageNet) or caffe (BGR, 0..255, mean pixel)"
        )


class UnknownNetworkError(InputError):
    """A network that timm does not have."""


def _known_layers(backbone: str) -> tuple[list[str], list[str]]:
    """Return the names of the layers and of the further outputs of a network."""
    if not is_timm(backbone):
        taps, outputs = TAPS[backbone], OUTPUTS.get(backbone, ())
        return [tap.layer for tap in taps], [tap.layer for tap in outputs]
    from fne.extraction.timm_networks import open_timm  # timm: slow to import

    try:
        found = open_timm(backbone)
    except InputError as error:
        raise UnknownNetworkError(error.message) from None
    return [tap.layer for tap in found.taps], [tap.layer for tap in found.outputs]


def _text_faults(folder: Path, tokenize: Tokenize | None, train: Train | None) -> Iterator[str]:
    """Find missing vectors of words, and a model that reads words where there are rows, or the reverse."""
    if not tokenize:
        return
    name, has_rows = tokenize.vectors, _has_rows(folder, tokenize)
    if not has_rows and not (folder / name).is_file():
        yield "section 'tokenize': vectors: " + (
            f"'{name}' is made by a pipeline that is off; copy {TEXT_PIPELINE} to dvc.yaml beside it"
            if name in MADE_OF_TEXT
            else f"there is no file '{name}'; use {NO_VECTORS} or a file of word vectors"
        )
    if not train:
        return
    if not has_rows and not is_no_vectors(name) and (fault := unused_vectors_message(train, name)):
        yield f"section 'tokenize': {fault}"
    if fault := rows_fault(train, has_rows):
        yield f"section 'train': {fault}"


def _has_rows(folder: Path, tokenize: Tokenize) -> bool:
    """Return whether `tokenize.vectors` has rows of captions, or a stage makes them in time."""
    is_on = (folder / TEXT_PIPELINE).with_name("dvc.yaml").is_file()
    return is_caption_store(folder / tokenize.vectors) or (is_on and tokenize.vectors in MADE_OF_TEXT)


def _unfit_words(tokenize: Tokenize, train: Train) -> Iterator[str]:
    """Find vectors that are not given, and captions that need not fit the positions of a text CNN."""
    if train.words == "fixed" and is_no_vectors(tokenize.vectors):
        yield (
            f"section 'train': words: 'fixed' needs word vectors, but tokenize.vectors is "
            f"'{tokenize.vectors}'; name a file of word vectors, or use 'learned'"
        )
    positions = train.text_cnn.positions
    if (
        train.method == "steps"
        and train.text_encoder == "text_cnn"
        and not 1 <= tokenize.longest <= positions
    ):
        yield (
            f"section 'tokenize': longest: text encoder 'text_cnn' has {positions} positions; use 1 to "
            f"{positions}, got {tokenize.longest}"
        )


def _missing_source(folder: Path, embed: Embed | None) -> Iterator[str]:
    if embed and embed.source != EXTRACTED and not (folder / embed.source / MANIFEST).is_file():
        yield (
            f"section 'embed': source: no row store in '{embed.source}'; "
            f"use {EXTRACTED}, or a store that `fne import` or `fne join` wrote"
        )


def _missing_layer(extract: Extract, embed: Embed) -> Iterator[str]:
    """Find layers that the backbone does not have."""
    try:
        known = _known_layers(extract.backbone)
    except UnknownNetworkError as error:
        yield f"section 'extract': backbone: {error.message}"
        return
    names = [*known[0], *known[1]]
    if extract.layers == ALL:
        layers, whose = known[0], f"the layers of {extract.backbone}"
        if embed.layer in names:
            whose += f"; extract '{embed.layer}' with extract.layers=[{embed.layer}]"
    elif unknown := [name for name in extract.layers if name not in names]:
        yield (
            f"section 'extract': layers: {not_one_of(unknown[0], names)}, the layers of {extract.backbone}"
        )
        return
    else:
        layers = [name for name in names if name in extract.layers]
        whose = "the layers of extract.layers"
    if extract.views == "each" and embed.kind != OF_VIEWS:
        yield (
            f"section 'embed': kind: extract.views is 'each', which only kind '{OF_VIEWS}' keeps separately, "
            f"got '{embed.kind}'"
        )
    elif embed.kind in ONE_LAYER:
        if embed.layer not in layers:
            yield f"section 'embed': layer: {not_one_of(embed.layer, layers)}, {whose}"
    else:
        try:
            kept_layers(layers, embed.layers)
        except ValueError as error:
            yield f"section 'embed': layers: {extract.backbone} {error}"


def _untunable(sections: Mapping[str, Any], section: str) -> Iterator[str]:
    """Find what keeps the image network from being tuned as a section says."""
    catalog, extract, embed, train, tuning = (
        sections[name] for name in ("catalog", "extract", "embed", "train", section)
    )
    if catalog.images == "none":
        yield "section 'catalog': images: fine-tuning needs image files, but it is 'none'; name their folder"
    elif embed.source != EXTRACTED:
        yield (
            f"section 'embed': source: fine-tuning needs a network to train, but the embeddings come from "
            f"{embed.source}; set it to {EXTRACTED}"
        )
    elif embed.kind not in WITH_GRADIENT:
        yield f"section 'embed': kind: fine-tuning {kind_fault(embed.kind)}"
    elif section == "finetune" and tuning.has_instance_loss and not train.has_instance_loss:
        yield (
            "section 'finetune': image_class_weight and text_class_weight need the classifier of an instance "
            "loss in `train`; set both to 0, or train.image_class_weight to 1.0"
        )
    else:
        from fne.finetuning.tuned_network import trained_taps  # torch: slow to import

        try:
            # The last one of several layers is known once there are weights.
            last = embed.layer if embed.kind in ONE_LAYER else ""
            trained_taps(extract.backbone, last, tuning.first, section)
        except InputError as error:
            yield f"section '{section}': {error.message.removeprefix(f'params.yaml: {section}.')}"


def _missing_keys(folder: Path, params: Mapping[str, Any]) -> list[str]:
    """Find keys that pipeline files name: DVC takes them from the parameter files, and knows no default."""
    known = {*params, *flattened(params)}
    named = {key: pipeline for pipeline in pipeline_files(folder) for key in _named_keys(folder / pipeline)}
    return [
        f"'{key}' is missing, which {pipeline} names; add it with its default, {_default_of(key)}"
        for key, pipeline in named.items()
        if key not in known and not any(each.startswith(f"{key}.") for each in known)
    ]


def _foreign_files(folder: Path) -> list[str]:
    """Find what DVC would remove with a folder of a stage's outputs, before the stage runs."""
    return [
        f"{each.relative_to(folder)}: DVC removes what is in {place}/ before the stage that writes there; "
        "move it, for example to features/"
        for place, names in OUTPUT_FOLDERS.items()
        for each in sorted((folder / place).glob("[!.]*"))
        if each.name not in names
    ]


def _named_keys(pipeline: Path) -> list[str]:
    """Return the sections and keys that a pipeline file names as parameters or in templates."""
    if not pipeline.is_file():
        return []
    stages = read_yaml(pipeline).get("stages")
    found = re.findall(r"\$\{([\w.]+)\}", pipeline.read_text(encoding="utf-8"))
    for stage in stages.values() if isinstance(stages, dict) else []:
        for each in stage.get("params", []) if isinstance(stage, dict) else []:
            found += [each] if isinstance(each, str) else [key for keys in each.values() for key in keys]
    return [key for key in dict.fromkeys(found) if key.partition(".")[0] in SECTIONS]


def _default_of(key: str) -> str:
    section, _, name = key.partition(".")
    default = flattened(SECTIONS[section]().model_dump()).get(name)
    return f"`{key}: {{}}`" if default is None else f"`{name}: {shown(default)}`"


def _unknown_algorithm(runtime: Runtime | None) -> Iterator[str]:
    allowed = (AUTO, *ALGORITHM_NAMES)
    if runtime and runtime.algorithm not in allowed:
        yield f"section 'runtime': algorithm: {not_one_of(runtime.algorithm, allowed)}"
