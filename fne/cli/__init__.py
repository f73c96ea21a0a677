"""The `fne` command: a group that imports a subcommand only when it is used."""

from importlib import import_module

import click

from fne.core.garbage import collect_rarely

# The module of each subcommand, and the line that `fne --help` shows for it.
COMMANDS = {
    "init": ("init", "Start a project in FOLDER: pipelines, parameters, Git and DVC."),
    "upgrade": ("upgrade", "Move a project to the installed version of fne."),
    "check": ("check", "Validate all parameters before anything is computed."),
    "inspect": ("inspect", "Show what each artifact of the pipeline is, and what made it."),
    "verify": ("verify", "Check artifacts completely: those at PATHS, or all of the pipeline."),
    "search": ("search", "Find images for a sentence or an image, or sentences for an image."),
    "serve": ("serve", "Search in a browser, with the model loaded once."),
    "describe": ("describe", "Describe images: a sentence, tags and concepts."),
    "import": ("import_", "Import features, a published folder, or weights of Caffe."),
    "export": ("export", "Write the rows of a STORE for other programs."),
    "publish": ("publish", "Write stores for others as a folder, with a description and digests."),
    "join": ("join", "Join row stores of activations: the layers of all, side by side."),
    "doctor": ("doctor", "Describe the machine and the scratch folder, and list problems."),
    "preset": ("preset", "Print a method of a paper as overrides for DVC."),
    "compare": ("compare", "Compare two experiments: settings, metrics, curves and queries."),
    "study": ("study", "Run a study of many training runs, and show what it says."),
    "table": ("table", "Show a table of a paper next to the results of this project."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"fne.cli.{module}"), module)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


collect_rarely()


# In the docstrings of commands, \b tells click not to wrap the lines of a paragraph.
@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="fne-pipeline", prog_name="fne")
def main() -> None:
    """Find the image for a sentence, and the sentence for an image.

    DVC runs the pipeline:

    \b
      dvc repro                             run all stages that changed
      dvc exp run -S embed.layers=fc        run a variant
      dvc exp show --only-changed --drop '.*(_full|_to_|/[^:]+$)|made'
                                            list variants; choose by validation.rsum
      fne inspect metrics/retrieval.json    show recalls and ranks

    The commands below search, and check parameters, artifacts and the machine.
    """
