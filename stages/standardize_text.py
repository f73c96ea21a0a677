"""Stage `standardize_text`: mean and deviation of each feature of captions over the training captions."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime
from fne.core.stage import stage
from fne.core.terminal import say
from fne.features.standardize import CAPTIONS_LAYOUT, fit
from fne.store.arrays import write_arrays
from fne.store.catalog import captioned_in, read_captions, require_images, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows


@stage("embed_text.source", paths=["embed_text.source"])
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=OUTPUT)
@params_option
def main(captions: Path, statistics: Path, params: Path) -> None:
    """Fit mean and deviation of the store `embed_text.source` over the training CAPTIONS."""
    stat_cache.use(load_runtime(params).scratch_folder())
    captioned, catalog = read_captions(captions)
    rows = Rows.open(Path(load_key(params, "embed_text", "source")), "caption_features")
    training = captioned_in(captioned, "train")
    require_images(training, "train", least=1, purpose="standardize_text")
    ids = [each for record in training for each in record.caption_ids]
    fitted = fit(rows, ids, "caption")
    constant = len(fitted.mean) - int(fitted.varies.sum())
    say(f"{len(ids)} training captions, {len(fitted.mean)} features, {constant} of them constant (z = 0)")
    write_arrays(
        statistics,
        CAPTIONS_LAYOUT.name,
        {"mean": fitted.mean, "deviation": fitted.deviation, "ids": ids},
        {"captions": len(ids), "constant_features": constant},
        recorded_lineage(rows.artifact, catalog, split_artifact(captions, captioned, "train")),
    )


if __name__ == "__main__":
    main()
