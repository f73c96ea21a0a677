"""`fne import`: import what other programs made, and what others published.

Features from an HDF5, NumPy or Parquet file become a row store that `embed.source` can name; vectors of
captions become one that `tokenize.vectors` can name. Weights from a `.caffemodel` become a file that
`extract.weights` can name.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from fne.core.dvc import added_out, pipeline_outs, project_path
from fne.core.errors import InputError
from fne.core.options import INPUT
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.terminal import say
from fne.features.import_features import CAPTION_FEATURES, ArrayNames, import_rows
from fne.features.join import check_destination
from fne.sharing.published import take
from fne.store.catalog import CAPTIONS_FILE, read_captions

CAFFEMODEL = ".caffemodel"
PARAMS = Path("params.yaml")
# The settings that name a store of an artifact.
KEYS = {"activations": "embed.source", CAPTION_FEATURES: "tokenize.vectors"}


@click.command("import")
@click.argument("file", type=INPUT)
@click.option(
    "--to",
    type=INPUT,
    help="The folder of the new store, or the new weights file.  [default: features/imported, "
    "features/imported_captions, or FILE with the suffix .safetensors]",
)
@click.option("--captions", is_flag=True, help="The rows are vectors of captions.")
@click.option(
    "--similarity",
    type=click.Choice(["cosine", "euclidean", "order", "order_root"]),
    default="cosine",
    show_default=True,
    help="How vectors of images and captions of one space are compared, if both sides are imported.",
)
@click.option("--backbone", type=click.Choice(["vgg16", "vgg19"]), help="The network of a .caffemodel.")
@click.option("--values", metavar="NAME", help="The array of rows and columns.")
@click.option("--ids", metavar="NAME", help="The array of row ids.")
@click.option("--ids-file", type=INPUT, help="A text file with one id per line, instead of an array.")
@click.option("--layers", metavar="NAME", help="The array with the layer of each column.")
@click.option(
    "--photos",
    type=INPUT,
    help="A folder with photos of the features: if `extract` computes the same rows, record its network.",
)
@click.option(
    "--text-network",
    type=INPUT,
    help="The folder of the network that made vectors of captions: new sentences can then be searched.",
)
@click.option(
    "--catalog", type=INPUT, help="The catalog whose images need rows.  [default: data/captions.jsonl]"
)
def import_(
    file: Path,
    to: Path | None,
    captions: bool,
    similarity: str,
    backbone: str | None,
    values: str | None,
    ids: str | None,
    ids_file: Path | None,
    layers: str | None,
    photos: Path | None,
    text_network: Path | None,
    catalog: Path | None,
) -> None:
    """Import features, a published folder, or weights of Caffe.

    FILE is an HDF5, .npy, .npz or Parquet file with one row per image, and the ids of the images as in
    the catalog. Arrays need to be named only if there are several candidates. Nothing in the
    file is executed, and nothing outside it is read. Set `embed.source` to the new store.

    With --captions there is one row per caption. Its id is image#number, counted from 0, or the image's
    id with the caption's number in an array `number`. Set `tokenize.vectors` to the new store.
    If images and captions are vectors of one space, `imported.images` and `imported.captions` name
    both stores, and the pipeline in pipelines/imported evaluates them as they are.

    With --photos, up to 16 photos are computed as `extract` in params.yaml says. If their rows agree, the
    store records the network, and new photos can be searched and described.

    With --text-network, vectors of up to 16 captions are computed: a folder of sentence-transformers, CLIP,
    SigLIP or open_clip, with safetensors. If they agree, the store records it.

    Or FILE is a folder that `fne publish` wrote. It is checked completely, and copied to features/ with
    the origin of its stores.

    Or FILE is a .caffemodel of VGG16 or VGG19. Its weights are converted without Caffe, with a
    description of how they expect images. Set `extract.weights` to the new file.
    """
    of_features = any((values, ids, layers, ids_file, catalog, captions, photos, text_network))
    if file.is_dir():
        if of_features or backbone:
            raise click.UsageError("a published folder needs only --to")
        say(import_published(file, to or Path("features", file.resolve().name)))
        return
    if file.suffix == CAFFEMODEL:
        if of_features:
            raise click.UsageError("a .caffemodel needs only --backbone and --to")
        say(import_weights(file, to or file.with_suffix(".safetensors"), backbone))
        return
    if backbone:
        raise click.UsageError("--backbone is for a .caffemodel")
    if captions and photos:
        raise click.UsageError("--photos is for the features of images")
    if photos and not photos.is_dir():
        raise InputError(f"{photos}: no such folder; --photos names a folder with photos of the features")
    if text_network and not captions:
        raise click.UsageError("--text-network is for --captions")
    store = to or Path("features/imported_captions" if captions else "features/imported")
    found = import_features(
        file, store, ArrayNames(values, ids, layers), ids_file, catalog, captions, similarity
    )
    if photos:
        say(recognize_network(store, photos))
    if text_network:
        say(recognize_text_network(store, text_network, catalog or CAPTIONS_FILE, similarity))
    say(found)


def import_published(source: Path, target: Path) -> str:
    """Copy a published folder, and return what it holds and the next commands as text."""
    refuse_out(target)
    lines, steps = [f"{target}: checked and copied, with the origin of each store"], [f"  dvc add {target}"]
    for rows in take(source, target):
        store, name = rows.artifact.path, rows.artifact.name
        lines.append(
            f"  {store.name:<12}{name}, {len(rows.ids)} rows of {rows.features} values ({rows.dtype})"
        )
        if name in KEYS:
            of_captions = name == CAPTION_FEATURES
            covered = _coverage(rows.ids, CAPTIONS_FILE, _wanted(None, of_captions), of_captions)
            lines.append(f"  {'':<12}{covered}")
            steps.append(f"  dvc exp run -S {KEYS[name]}={store}")
    return "\n".join([*lines, "next:", *steps])


def import_weights(source: Path, target: Path, backbone: str | None) -> str:
    """Convert a `.caffemodel`, and return what was converted and the next commands as text."""
    from fne.extraction.caffe_weights import convert_caffemodel  # torch: slow to import

    if backbone is None:
        raise InputError(f"{source}: which network is it? Add --backbone vgg16 or --backbone vgg19")
    if target.is_dir() or target.suffix != ".safetensors":
        raise InputError(f"{target}: weights become a file whose name ends with .safetensors; change --to")
    layers = convert_caffemodel(source, target, backbone)
    return "\n".join(
        [
            f"{target}: {len(layers)} layers of {backbone}, {target.stat().st_size:,} bytes",
            f"  layers    {layers[0]} to {layers[-1]}",
            "  input     BGR 0..255 without the mean pixel, recorded in the file",
            "next:",
            f"  dvc exp run -S extract.backbone={backbone} -S extract.weights={target}",
        ]
    )


def recognize_network(store: Path, photos: Path) -> str:
    """Record the network of `extract` in a store whose rows it computes, and return what was compared."""
    from fne.core.device import prepare_device  # torch: slow to import
    from fne.extraction.extractor import build_extractor
    from fne.extraction.recorded_extractor import record_network
    from fne.extraction.settings import Extract
    from fne.extraction.weights import load_weights

    try:
        settings, runtime = load_section(PARAMS, "extract", Extract), load_runtime(PARAMS)
        weights = load_weights(Path(settings.weights), settings.backbone, settings.input)
        extractor = build_extractor(settings, weights, runtime.algorithm, prepare_device(runtime))
        found = record_network(store, photos, extractor, weights)
    except InputError as error:
        raise InputError(f"{error.message}; {store} was imported without its network") from None
    return (
        f"{store}: computed by {settings.backbone} with {settings.weights}; {found.photos} photos agree, the "
        f"largest difference of a layer is {found.difference:.2g} of its length"
    )


def recognize_text_network(store: Path, place: Path, catalog: Path, similarity: str) -> str:
    """Record the text network that made imported vectors, and return what was compared."""
    from fne.extraction.sentence_vectors import record_text_network  # torch: slow to import
    from fne.extraction.text_rows import caption_texts

    try:
        texts = caption_texts(read_captions(catalog)[0])
        count, difference = record_text_network(store, place, texts, similarity == "cosine")
    except InputError as error:
        raise InputError(f"{error.message}; {store} was imported without its network") from None
    told = f"{count} captions agree, the largest difference is {difference:.2g} of the length"
    return f"{store}: made by {place}; {told}"


def import_features(
    source: Path,
    store: Path,
    names: ArrayNames,
    ids_file: Path | None,
    catalog: Path | None,
    of_captions: bool = False,
    similarity: str = "cosine",
) -> str:
    """Import a file, and return what was imported and the next commands as text."""
    check_target(store, CAPTION_FEATURES if of_captions else "activations")
    captions = catalog or CAPTIONS_FILE
    wanted = _wanted(catalog, of_captions)
    imported = import_rows(source, store, names, ids_file, of_captions, similarity)
    size = sum(file.stat().st_size for file in store.iterdir())
    shape = f"{len(imported.ids)} rows of {imported.features} values"
    return "\n".join(
        [
            f"{store}: {shape} ({imported.dtype}), {size:,} bytes",
            f"  values    {imported.values}",
            f"  ids       {imported.ids_from}, the first is {imported.ids[0]!r}",
            f"  layers    {imported.layers_from}: "
            + ", ".join(f"{layer.name} {layer.features}" for layer in imported.layers),
            f"  catalog   {_coverage(imported.ids, captions, wanted, of_captions)}",
            "next:",
            *_next_steps(store, "tokenize.vectors" if of_captions else "embed.source"),
        ]
    )


def _wanted(captions: Path | None, of_captions: bool) -> list[str] | None:
    """Return the ids of a catalog, by default the project's, that need rows; None if there is none yet."""
    if captions is None and not CAPTIONS_FILE.exists():
        return None
    records = read_captions(captions or CAPTIONS_FILE)[0]
    return [each for record in records for each in (record.caption_ids if of_captions else [record.id])]


def _next_steps(store: Path, key: str) -> list[str]:
    """Return what to type next, without what is done already."""
    track = f"  dvc add {store}    # track it with DVC, for colleagues and temporary experiments"
    try:
        is_set = Path(load_key(PARAMS, *key.split("."))) == store
    except InputError:  # not in a project
        is_set = False
    return [
        *[track] * (added_out(store) is None),
        "  dvc repro    # params.yaml names this store already"
        if is_set
        else f"  dvc exp run -S {key}={store}",
    ]


def check_target(store: Path, name: str = "activations") -> None:
    """Refuse a folder that a stage writes, or that holds anything but a row store of this artifact."""
    refuse_out(store)
    check_destination(store, name)


def refuse_out(path: Path) -> None:
    """Refuse a folder that a stage writes."""
    outs, target = pipeline_outs(), project_path(path)
    for folder in (target, *target.parents):
        if folder in outs:
            stage = outs[folder].stage
            raise InputError(f"{path}: stage '{stage}' writes this folder; choose another one with --to")


def _coverage(ids: Sequence[str], captions: Path, wanted: Sequence[str] | None, of_captions: bool) -> str:
    what, stage = ("caption", "tokenize") if of_captions else ("image", "embed")
    if wanted is None:
        return (
            f"{captions} does not exist; `dvc repro catalog` makes it, and `{stage}` needs a row for each "
            f"{what}"
        )
    missing = sorted(set(wanted) - set(ids))
    if not missing:
        return f"all {len(wanted)} {what}s of {captions} have a row"
    return (
        f"{len(missing)} of the {len(wanted)} {what}s of {captions} have no row, the first is "
        f"{missing[0]!r}; `{stage}` will refuse the store"
    )
