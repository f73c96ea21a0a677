"""Stage `extract`: the activations of a whole network for every image."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.extraction.cost import shard_advice
from fne.extraction.extractor import build_extractor
from fne.extraction.finished_rows import (
    Scratch,
    fetchable_from,
    hardware_warning,
    reuse_cached_rows,
    summarize_hardware,
)
from fne.extraction.read_images import ImageFiles
from fne.extraction.run import COMPUTERS, Report, extract
from fne.extraction.settings import Extract
from fne.extraction.weights import load_weights
from fne.store.artifact import Sections
from fne.store.catalog import image_root, read_images
from fne.store.lineage import recorded_lineage
from fne.store.rows import write_rows, write_without_rows


@stage("extract", "embed.source", paths=["extract.weights"])
@click.argument("images", type=INPUT)
@click.argument("activations", type=OUTPUT)
@params_option
def main(images: Path, activations: Path, params: Path) -> None:
    """Compute the ACTIVATIONS of all layers for all IMAGES of the catalog.

    If `embed.source` names another store, nobody would read them: the store then has no rows.
    """
    settings, runtime = load_section(params, "extract", Extract), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    # Only where the files are; what they are is checked by their digests.
    root = image_root(load_key(params, "catalog", "root"))
    records, catalog = read_images(images)
    source = load_key(params, "embed", "source")
    if Path(source) != activations:
        reason = f"embed.source was '{source}'"
        write_without_rows(activations, "activations", reason, recorded_lineage(catalog))
        say(f"{activations}: nothing to compute, because embed.source is '{source}'; finished rows are kept")
        return
    weights = load_weights(Path(settings.weights), settings.backbone, settings.input)
    with COMPUTERS[runtime.engine](settings, runtime, say) as computer:
        extractor = build_extractor(settings, weights, runtime.algorithm, computer.device, computer.remote)
        scratch = Scratch(runtime.scratch_folder() / "activations", extractor.kind, extractor.features)
        advice = shard_advice(extractor, len(records), settings.shards)
        if advice:
            say(advice, err=True)
        reuse_cached_rows(scratch, records, activations, images, extractor)
        may_fetch = runtime.missing_store == "fetch"
        remote = fetchable_from(activations, settings.model_dump()) if may_fetch else None
        files = ImageFiles(records, root, extractor.resize)
        shards = extract(files, extractor, scratch, computer, Report(), remote, settings.shards)
    lineage = recorded_lineage(catalog, weights.artifact)
    digests = {image.id: image.sha256 for image in records}
    hardware = summarize_hardware(digests, scratch.hardware(digests.values()))
    warning = hardware_warning(hardware)
    if warning and records:
        say(warning, err=True)
    made_in: Sections = {"extract": {}}
    made_with = extractor.kind
    write_rows(
        activations, "activations", extractor.layers, "float32", shards, made_with, lineage, hardware, made_in
    )


if __name__ == "__main__":
    main()
