"""Stage `catalog`: which images and captions a data set has."""

from pathlib import Path

import click

from fne.core.options import OUTPUT, TABLE, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import input_digests, stage
from fne.core.stat_cache import VerifiedFiles
from fne.core.terminal import say
from fne.datasets.examine_images import findings_file
from fne.datasets.location import dataset_root, warn_if_untracked
from fne.datasets.read import Catalog, check_catalog, read_catalog, summary
from fne.datasets.rejects import refuse_rejects, write_rejects
from fne.store.catalog import write_captions, write_images, write_record


@stage("catalog", paths=["catalog.root"])
@click.argument("images", type=OUTPUT)
@click.argument("captions", type=OUTPUT)
@click.argument("rejects", type=TABLE)
@click.argument("record", type=OUTPUT)
@params_option
def main(images: Path, captions: Path, rejects: Path, record: Path, params: Path) -> None:
    """List the data set's IMAGES and CAPTIONS, what is unusable in REJECTS, and how in RECORD."""
    settings = load_section(params, "catalog", Catalog)
    runtime = load_runtime(params)
    root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
    warn_if_untracked(Path(settings.root), root)
    cache = runtime.scratch_folder() / "catalog"
    result = read_catalog(root, annotations, settings, runtime.workers, cache)
    digests = {"rejects": write_rejects(rejects, result.rejects)}
    refuse_rejects(rejects, result.rejects, settings.max_rejects)
    check_catalog(root, result)
    digests["images"] = write_images(images, result.images)
    digests["captions"] = write_captions(captions, result.captioned)
    known = VerifiedFiles(findings_file(cache, root).with_suffix(".md5"))
    write_record(record, digests, settings.model_dump(), input_digests(known))
    say(summary(result, rejects))


if __name__ == "__main__":
    main()
