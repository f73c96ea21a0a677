"""The `fne` command.

Each subcommand's work is a module of `fne.commands`, imported when it is called: the
help shall not wait for torch.
"""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option


# In the docstrings below, \b tells click to leave a paragraph's lines as they are.
@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fne-pipeline", prog_name="fne")
def main() -> None:
    """Find the image for a sentence, and the sentence for an image.

    The pipeline itself is run by DVC:

    \b
      dvc repro                             run what has changed, from images to report
      dvc exp run -S train.margin=0.1       try a variant
      dvc exp show --only-changed           compare variants
      dvc metrics show                      recalls and ranks

    The commands below ask what it has made, and look after parameters, artifacts and the machine.
    """


@main.command()
@params_option
@click.option("--demo", is_flag=True, help="Also refuse parameters that do not name the embedded data set.")
@click.option("--captions", type=INPUT, help="Also look for the splits needed later in this catalog.")
def check(params: Path, demo: bool, captions: Path | None) -> None:
    """Validate all parameters before anything is computed.

    Names every unknown key, wrong type, unknown variant and missing file, and what is
    allowed instead. `dvc repro` does this before it starts.
    """
    from fne.commands.check import check_demo, check_params, check_splits

    sections = check_params(params)
    if demo:
        check_demo(params, sections)
    if captions and captions.exists():
        check_splits(params, sections, captions)
    click.echo(f"{params}: {len(sections)} sections, all valid")


@main.command()
@click.argument("paths", nargs=-1, required=True, type=INPUT)
def inspect(paths: tuple[Path, ...]) -> None:
    """Say what each artifact of the pipeline is, and what made it.

    \b
      fne inspect metrics/retrieval.json         the table of recalls
      fne inspect features/embeddings            layers, rows, settings, digests
      fne inspect models/matching.safetensors    settings, best epoch, ancestors
    """
    from fne.commands.inspect import inspect_path

    click.echo("\n\n".join(inspect_path(path) for path in paths))


@main.command()
@click.argument("paths", nargs=-1, type=INPUT)
@click.option("--remote", metavar="NAME", help="Check this remote of DVC instead of artifacts.")
@click.option("--read", is_flag=True, help="Remote: read all contents, not only where sizes leave a doubt.")
@click.option("--repair", is_flag=True, help="Remote: send again what is missing or wrong, and check again.")
@click.option("--all-commits", is_flag=True, help="Remote: also what all commits name.")
@click.option("--rev", "revisions", metavar="REV", multiple=True, help="Remote: only what this commit names.")
@click.option("--run-cache", is_flag=True, help="Remote: also what `dvc repro --pull` restores.")
@click.option("--install-hook", is_flag=True, help="Remote: check it before each `git push` from now on.")
def verify(
    paths: tuple[Path, ...],
    remote: str | None,
    read: bool,
    repair: bool,
    all_commits: bool,
    revisions: tuple[str, ...],
    run_cache: bool,
    install_hook: bool,
) -> None:
    """Check artifacts in full: those at PATHS, or all of the pipeline that are here.

    Hashes every byte; looks at shapes, ids, values, links out of files, files that do not
    belong, and whether the artifacts were made from each other. Every fault is a line that
    ends with the command that mends it; the exit code is then 2.

    With --remote, check that a colleague can really pull from there everything that
    dvc.lock and .dvc files name, in the workspace and in the last commit.
    """
    choices = [read, repair, all_commits, revisions, run_cache, install_hook]
    if any(choices) if remote is None else paths:
        raise click.UsageError("name either artifacts or --remote NAME; the other options go with --remote")
    if remote is not None and install_hook:
        from fne.sharing.hook import install_hook as install

        click.echo(f"`git push` now checks '{remote}' first; remove the hook with: {install(remote)}")
        return
    if remote is not None:
        from fne.commands.remote import verify_remote

        answer = verify_remote(remote, read, repair, all_commits, revisions, run_cache)
        click.echo(answer.summary)
        for fault in answer.faults:
            click.echo(fault, err=True)
        raise click.exceptions.Exit(2 if answer.faults else 0)
    from fne.commands.verify import verify as work

    verdict = work(paths)
    for fault in verdict.faults:
        click.echo(fault, err=True)
    absent = f", {len(verdict.absent)} not here (`dvc pull` fetches them)" if verdict.absent else ""
    click.echo(f"{verdict.checked} artifacts verified{absent}, {len(verdict.faults) or 'no'} faults")
    if verdict.faults:
        raise click.exceptions.Exit(2)


@main.command()
@click.argument("query", nargs=-1)
@params_option
@click.option("--by", metavar="KIND", help="Find images that look alike, by embeddings of this kind: fne, …")
@click.option("--in", "folder", type=INPUT, help="Search this folder of photos instead of the catalog.")
@click.option("--k", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer for programs.")
@click.option("--sheet", type=OUTPUT, help="Also write the answer as a picture (PNG).")
def search(
    query: tuple[str, ...],
    params: Path,
    by: str | None,
    folder: Path | None,
    k: int,
    as_json: bool,
    sheet: Path | None,
) -> None:
    """Find images for a sentence, sentences for an image, or images for an image.

    QUERY is a sentence, an image file, or the id of an image of the catalog.

    \b
      fne search "a red circle above a blue square"    images for a sentence
      fne search photo.jpg                             sentences for an image
      fne search --by fne photo.jpg                    images that look alike; no model needed
      fne search "a dog" --in ~/photos                 in a folder that nobody captioned

    A star marks what the catalog pairs with the query.
    """
    from fne.commands.search import answer

    answer(query, params, by, folder, k, as_json, sheet)


@main.command("import")
@click.argument("file", type=INPUT)
@click.option("--to", type=INPUT, default=Path("features/imported"), show_default=True, help="The new store.")
@click.option("--values", metavar="NAME", help="The array of rows and columns.")
@click.option("--ids", metavar="NAME", help="The array of row ids.")
@click.option("--ids-file", type=INPUT, help="A text file with an id a line, in place of an array.")
@click.option("--layers", metavar="NAME", help="The array with the layer of each column.")
@click.option("--catalog", type=INPUT, help="Whose images need a row.  [default: data/captions.jsonl]")
def import_(
    file: Path,
    to: Path,
    values: str | None,
    ids: str | None,
    ids_file: Path | None,
    layers: str | None,
    catalog: Path | None,
) -> None:
    """Bring in features that others computed, as a store that embed.source can name.

    FILE is HDF5, .npy or .npz, with a row for each image and the images' ids as in the
    catalog. Arrays need to be named only where several would do. Nothing in the file is
    executed, and nothing outside it is read.
    """
    from fne.commands.bring import bring
    from fne.store.chosen import Names

    click.echo(bring(file, to, Names(values, ids, layers), ids_file, catalog))


@main.command()
@params_option
@click.option(
    "--prune", metavar="ROWS", help="Remove finished rows from the scratch folder: by name, or 'all'."
)
@click.option(
    "--share", type=OUTPUT, metavar="DIR", help="Share cache and scratch folder with a group, in DIR."
)
@click.option("--group", metavar="NAME", help="With --share, the first time: the group that may use DIR.")
def doctor(params: Path, prune: str | None, share: Path | None, group: str | None) -> None:
    """Say what this machine offers, what the scratch folder holds, and what needs mending.

    Looks at links, permissions, free space, Git's identity, DVC's remotes and locks, settings
    of params.yaml that the machine cannot follow, and weights. Every fault is a line
    that ends with the command that mends it.

    The scratch folder (runtime.scratch) keeps finished rows of the extraction, so that no
    image is computed twice. It can be shared by clones and users, and removed at any time:
    what is missing is computed again.
    """
    from fne.commands import doctor as work
    from fne.core.runtime import load_runtime

    runtime = load_runtime(params)
    if share:
        click.echo(work.share(runtime, share.absolute(), group))
    else:
        click.echo(work.prune(runtime, prune) if prune else work.examine(runtime, params))


@main.command()
@click.argument("name", required=False)
@click.option(
    "--dataset",
    type=click.Choice(["flickr8k", "flickr30k", "coco", "demo"]),
    default="flickr8k",
    show_default=True,
    help="Whose dimensions and epochs; demo has small ones, for the embedded data set.",
)
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="The paper's equations and tables, or its authors' published code where that differs.",
)
@click.option("--list", "list_all", is_flag=True, help="Show all presets for the data set, with footnotes.")
def preset(name: str | None, dataset: str, following: str, list_all: bool) -> None:
    """Print a method of the paper as overrides for DVC.

    \b
      fne preset --list                                         all of them
      fne preset FNE-POE --dataset flickr8k                     one, as -S arguments
      dvc exp run $(fne preset FNE-POE --dataset flickr8k)      run it
      dvc exp run $(fne preset FNE-SH --dataset demo)           try one on the embedded data set

    A preset sets all that decides the embedding, the words and the training. The data
    set's folder (catalog.root) and the network's weights (extract.weights) stay as params.yaml
    has them. Footnotes go to standard error. (In fish, write (fne preset … | string split " ").)
    """
    from fne.commands import preset as work
    from fne.paper.presets import preset as find

    if list_all == (name is not None):
        raise click.UsageError("give the NAME of a preset, or --list")
    if name is None:
        click.echo(work.listed(dataset, following))
    else:
        chosen = find(name, dataset, following)
        click.echo(work.footnotes(chosen), err=True)
        click.echo(work.overrides(chosen))


@main.command()
@click.argument("number", required=False, type=click.Choice(["2", "3", "4", "5"]))
@click.option(
    "--compare", nargs=2, metavar="A B", help="Say whether two experiments differ; 'workspace' is one too."
)
@click.option("--dry", is_flag=True, help="Print the commands of the experiments that are missing.")
@click.option("--queue", is_flag=True, help="Put the missing experiments into DVC's queue, after asking.")
@click.option("--yes", is_flag=True, help="With --queue: do not ask.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each method.")
@click.option("--model", "models", multiple=True, help="With --dry or --queue: only this method; repeatable.")
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="With --dry or --queue: as for `fne preset`.",
)
@click.option("--dataset", type=click.Choice(["demo"]), help="Try a table on the embedded data set.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv", "html"]),
    default="text",
    show_default=True,
    help="How the table is written.",
)
@click.option("--output", type=OUTPUT, help="Write to this file instead of printing.")
@params_option
def table(
    number: str | None,
    compare: tuple[str, str] | None,
    dry: bool,
    queue: bool,
    yes: bool,
    seeds: int,
    models: tuple[str, ...],
    following: str,
    dataset: str | None,
    form: str,
    output: Path | None,
    params: Path,
) -> None:
    """Show a table of the paper with our results in it.

    \b
      fne table 2                                     printed rows, ours, the differences
      fne table 2 --format html --output table2.html
      fne table 2 --dry --model FNE-SH                what is missing, and the hours it takes
      fne table 5 --seeds 5 --queue                   how often MOE starts: queue the runs …
      dvc queue start                                 … run them …
      fne table 5                                     … and see the fraction beside the paper's
      fne table --compare workspace hexed-orle        do two experiments differ?

    A result stands in a row of the paper only if its data set, splits, weights (Caffe's
    VGG16), layers and settings are the paper's. All others get rows of their own, below,
    that say what they are. Results are found in the work tree and among DVC's experiments.

    --compare draws the test images again and again to see how far the difference of two
    experiments would vary. Experiments that differ in train.seed alone count as seeds of one;
    with fewer than five seeds on a side it does not say which one is better.
    """
    from fne.paper.grids import FORMATS
    from fne.store.files import write_text

    if (number is None) == (compare is None):
        raise click.UsageError("give the number of a table (2, 3, 4 or 5), or --compare A B")
    if compare is not None and (dry or queue):
        raise click.UsageError("--dry and --queue need the number of a table")
    if (models or yes or seeds > 1 or following != "paper") and not (dry or queue):
        raise click.UsageError("--model, --seeds, --following and --yes need --dry or --queue")
    if number is not None and (dry or queue):
        from fne.commands.plan import enqueue, propose

        lacking = propose(int(number), dataset, following, seeds, models, params, strict=queue)
        if lacking and queue and (yes or click.confirm(f"Queue these {len(lacking)}?", err=True)):
            enqueue(lacking)
        return
    from fne.commands import table as work

    grids = work.comparison(*compare) if compare else work.table(int(number or 0), dataset)
    made = FORMATS[form](grids)
    if output:
        write_text(output, made + "\n")
    else:
        click.echo(made)
