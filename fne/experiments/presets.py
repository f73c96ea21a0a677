"""The methods of the papers as overrides of `params.yaml`.

A preset sets every key that decides what is trained, and which images are validated and scored, whatever the
parameter files say: those that a paper's file leaves out get their defaults. It sets
nothing else: the folder of the data set, the weights of the network and, where the paper needs one, the file
of word vectors stay as the user has them, and so does the extraction where the preset names no encoder.

Presets are built from the files of `papers/`, one folder per paper, which hold what the paper prints and what
is needed to run it. They are data, so that each number can be compared with the printed page, and none is
repeated in Python. Methods of the FNE paper are addressed by their name (`FNE-POE`), those of other papers by
the paper and the name (`two-branch/VGG19-K10`, `semantic/RIA`). Papers whose systems describe images have
presets by pipeline (`tagging`, `captioning`). Presets for a data set of one's own stand in `papers/own.yaml`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from fne.core.code import SHIPPED
from fne.core.errors import InputError
from fne.core.settings import flattened, parse_section, put, read_yaml
from fne.experiments.effective_settings import DEFAULT, SECTIONS, pipeline_of_section, pipeline_params
from fne.experiments.grids import Footnotes, numbered

FOLDER = SHIPPED / "papers"
FNE = "fne"  # the paper whose methods and tables are addressed without its name
DEMO = "demo"
OWN = "own"  # presets for the user's own data set, of no paper
FOLLOWING = ("paper", "code")
CONTINUED = [800]  # the epochs of the launcher that continues another training
PER_PHASE = (
    "train.loss",
    "train.margin",
    "train.learning_rate",
    "train.epochs",
    "train.patience",
    "train.rank_weight",
    "train.image_class_weight",
    "train.text_class_weight",
    "train.words_rate",
    "train.classifier_rate",
    "train.gain_rate",
)
# Keys that presets do not add: the user's data and weights, seeds, and what decides no result.
LEFT = {
    "embed.source",
    "evaluate.top",
    "extract.input",
    "extract.shards",
    "extract.weights",
    "tokenize.vectors",
    *(
        f"{name}.{key}"
        for name in ("finetune", "train", "train_captioner", "train_tagger", "tune_captioner", "tune_tagger")
        for key in ("seed", "threads")
    ),
}
# The image network is tuned if a preset has this key.
TUNING = "finetune.epochs"
WIDTH = 34  # the column of names in the list of presets

Overrides = dict[str, Any]  # key of params.yaml, with its section: value, or a list with one per phase


@dataclass(frozen=True)
class Preset:
    """A method of a paper for one data set, with notes for the user."""

    name: str
    dataset: str
    following: str
    overrides: Overrides
    notes: list[str]

    @property
    def is_tuned(self) -> bool:
        """Whether the image network is trained too."""
        return TUNING in self.overrides


def load(name: str, paper: str = FNE) -> dict[str, Any]:
    """Return the content of one file of a paper, such as `table2`."""
    return _load(FOLDER / paper / f"{name}.yaml")


@cache
def papers() -> list[str]:
    """Return the names of all papers about retrieval, the FNE paper first."""
    return [FNE, *(paper for paper in _folders() if paper != FNE and paper not in description_papers())]


@cache
def description_papers() -> list[str]:
    """Return the names of all papers whose systems describe images."""
    return [paper for paper in _folders() if paper != FNE and "pipelines" in load("presets", paper)]


def split_address(address: str) -> tuple[str, str]:
    """Return the paper and the name within it of an address.

    Example:
        >>> split_address("FNE-POE"), split_address("two-branch/K10")
        (('fne', 'FNE-POE'), ('two-branch', 'K10'))
    """
    paper, separator, name = address.partition("/")
    return (paper, name) if separator else (FNE, address)


def for_dataset(value: Any, dataset: str, encoder: str = "") -> Any:
    """Return the value for a data set: the entry of a mapping from data sets, or else `value` itself.

    An entry may hold for one encoder only.

    Example:
        >>> for_dataset({"coco": 2000, "flickr8k": 1000}, "coco"), for_dataset(300, "coco")
        (2000, 300)
        >>> for_dataset({"coco": 75, "coco/VGG19": 70}, "coco", "VGG19")
        70
    """
    return value.get(f"{dataset}/{encoder}", value[dataset]) if isinstance(value, dict) else value


def datasets() -> list[str]:
    """Return the names of the data sets that have presets of the FNE paper."""
    return [*load("datasets"), DEMO]


def names() -> list[str]:
    """Return the addresses of all presets about retrieval, in the order of the papers."""
    return [name for paper in papers() for name in _names_of(paper)]


def description_names() -> list[str]:
    """Return the addresses of all presets of systems that describe images."""
    return [f"{paper}/{name}" for paper in description_papers() for name in _pipelines(paper)]


def own_names() -> list[str]:
    """Return the addresses of the presets for a data set of one's own."""
    return [f"{OWN}/{name}" for name in _load(FOLDER / f"{OWN}.yaml")["presets"]]


def pipeline_of(name: str) -> str:
    """Return the pipeline that runs a preset of a system that describes images, such as `tagging`."""
    paper, own = split_address(name)
    return _pipelines(paper)[own]


@cache
def every_preset() -> list[Preset]:
    """Return the presets about retrieval of all data sets, following the paper and following the code."""
    return [
        preset(name, dataset, following)
        for dataset in datasets()
        for name in names()
        if dataset in _datasets_for(name)
        for following in FOLLOWING
    ]


def preset(name: str, dataset: str, following: str = "paper") -> Preset:
    """Return the preset of a method for a data set; without such a preset, an error names the closest one.

    Args:
        name: one of `names()`, `description_names()` or `own_names()`.
        dataset: one of `datasets()`, or `OWN`.
        following: "paper" for its equations and tables, "code" for its authors' code where that differs.
    """
    paper, own = split_address(name)
    if OWN in (paper, dataset):
        return _own_preset(name)
    if paper in description_papers():
        _check_name(name, description_names())
        return _description_preset(paper, own, dataset, following)
    _check_name(name, names())
    if dataset not in _datasets_for(name):
        allowed = " and ".join(_datasets_for(name))
        raise InputError(
            f"'{name}' is a method of Table 5 only: it has presets for {allowed}, not for {dataset}"
        )
    if paper != FNE:
        return _combined_preset(paper, own, dataset, following)
    return _fne_preset(name, dataset, following)


def arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as arguments of `dvc exp run`, without spaces or quotes.

    With `++`, DVC adds a key that does not stand in the file, and replaces one that does.

    Example:
        >>> arguments({"train.loss": ["sum_hinge", "max_hinge"], "train.absolute": True})
        ['-S', '++train.loss=[sum_hinge,max_hinge]', '-S', '++train.absolute=true']
        >>> arguments({"train_tagger.units": 64})
        ['-S', 'pipelines/tagging/params.yaml:++train_tagger.units=64']
    """
    return [
        argument
        for key, value in overrides.items()
        for argument in ("-S", f"{_file(key)}++{key}={_format_value(value)}")
    ]


def _file(key: str) -> str:
    """Return the parameter file of a key as `-S` takes it; none is the one in the root."""
    pipeline = pipeline_of_section(key.partition(".")[0])
    return "" if pipeline == DEFAULT else f"{pipeline_params(pipeline)}:"


def completed(overrides: Overrides) -> Overrides:
    """Return overrides with the defaults of all further keys that apply to their sections."""
    content: Overrides = {}
    for key, value in overrides.items():
        put(content, key, value)
    found = dict(overrides)
    skipped = ["catalog", "render", *["finetune"] * (TUNING not in overrides)]
    for name in [each for each in content if each not in skipped]:
        section, faults = parse_section(content, name, SECTIONS[name])
        if section is None:
            raise ValueError(f"a preset has faults in section '{name}': {'; '.join(faults)}")
        for key, value in flattened(section.effective()).items():
            if f"{name}.{key}" not in LEFT:
                found.setdefault(f"{name}.{key}", value)
    return found


def list_presets(dataset: str, following: str) -> str:
    """Return all presets for a data set with their main settings, and their footnotes."""
    if dataset == OWN:
        listed = [preset(name, OWN) for name in own_names()]
    else:
        listed = [each for each in every_preset() if (each.dataset, each.following) == (dataset, following)]
        listed += [preset(name, dataset, following) for name in description_names()]
    notes, lines = Footnotes(), []
    for each in listed:
        name, settings, marks = f"{each.name:<{WIDTH}}", _main_settings(each), notes.marks(each.notes)
        lines.append(f"{name}{settings}" if dataset == OWN else f"{name}{settings:<82} {marks}")
    return "\n".join([*lines, "", *numbered(notes.texts)])


@cache
def _load(path: Path) -> dict[str, Any]:
    return read_yaml(path)


def _folders() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir() if (path / "presets.yaml").is_file())


def _names_of(paper: str) -> list[str]:
    if paper != FNE:
        rules = load("presets", paper)
        alone = list(rules["methods"])
        combined = [f"{encoder}-{method}" for method in alone for encoder in rules["encoders"]]
        return [f"{paper}/{name}" for name in (*combined, *alone)]
    table_1 = [f"{kind}-{method}" for method in load("table1")["methods"] for kind in ("FC7", "FNE")]
    table_5 = [row["model"] for row in load("table5")["rows"]]
    return [*dict.fromkeys([*table_1, *table_5, *load("presets")["originals"]])]


def _datasets_for(name: str) -> list[str]:
    paper, _ = split_address(name)
    if paper != FNE:
        return list(load("presets", paper)["notes_for"])
    is_general = name in load("presets")["originals"] or name.split("-", 1)[1] in load("table1")["methods"]
    return datasets() if is_general else [load("table5")["dataset"], DEMO]


@cache
def _pipelines(paper: str) -> dict[str, str]:
    """Return the pipeline of each system of a paper about descriptions, by its name."""
    pipelines = load("presets", paper)["pipelines"]
    return {name: pipeline for pipeline, rules in pipelines.items() for name in rules["methods"]}


def _check_name(name: str, known: Sequence[str]) -> None:
    if name not in known:
        lowercase = {each.lower(): each for each in known}
        close = lowercase[get_close_matches(name.lower(), lowercase, n=1, cutoff=0)[0]]
        raise InputError(f"there is no preset '{name}' (did you mean '{close}'?); see `fne preset --list`")


def _fne_preset(name: str, dataset: str, following: str) -> Preset:
    rules = load("presets")
    if name in rules["originals"]:
        overrides: Overrides = rules["embeddings"]["FC7"] | rules["all"] | rules["originals"][name]
        notes: list[str] = rules["notes_of"][name]
    else:
        overrides, notes = _paper_method(name, dataset, following)
    if dataset == DEMO:
        lists = (overrides[key] for key in PER_PHASE if isinstance(overrides.get(key), list))
        epochs = rules["epochs_of_demo"] // max(map(len, lists))
        overrides |= rules["demo"] | {"train.epochs": [epochs]}
    overrides |= rules["datasets"][dataset]
    left = "left" if "extract.backbone" in overrides else "left_extract"
    # What the paper says of its own data sets does not matter for the demo.
    notes = [*notes * (dataset != DEMO), *rules["notes_for"].get(dataset, []), left]
    overrides["train.patience"] = overrides["train.epochs"]
    texts = rules["notes"] | load("table1")["errata"] | load("table5")["errata"]
    return Preset(name, dataset, following, _in_order(overrides), [texts[note] for note in notes])


def _paper_method(name: str, dataset: str, following: str) -> tuple[Overrides, list[str]]:
    rules = load("presets")
    kind, method = name.split("-", 1)
    # Table 1 has no column for the demo. It uses that of Flickr8k, with dimensions of its own.
    column = "flickr8k" if dataset == DEMO else dataset
    if method in load("table1")["methods"]:
        printed = load("table1")["methods"][method]
        epochs = for_dataset(rules["epochs"].get(method, rules["epochs"]["others"]), column)
    else:
        printed, epochs = _table_5_row(name)
    settings = {
        "similarity": rules["names"]["similarity"][printed["similarity"]],
        "loss": [rules["names"]["loss"][loss] for loss in printed["loss"]],
        **{key: for_dataset(printed[key], column) for key in ("embed_dim", "word_dim", "learning_rate")},
        **{key: printed[key] for key in ("margin", "absolute")},
        "epochs": [epochs],
    }
    overrides: Overrides = rules["extraction"] | rules["embeddings"][kind] | rules["all"]
    overrides |= rules["following"][following]
    overrides |= {f"train.{key}": value for key, value in settings.items()}
    notes = [*printed.get("errata", []), "epochs", *rules["notes_of"].get(method, [])]
    if following == "code":
        launched = rules["launchers"][dataset].get(name, {})
        overrides |= launched
        notes += ["launcher"] * bool(launched) + ["phases_code"] * (len(printed["loss"]) > 1)
        if method == "MOE":
            notes = [*(note for note in notes if note != "moe_rate"), "moe_code"]
        if launched.get("train.epochs") == CONTINUED:
            notes.append("continued")
    return overrides, notes


def _table_5_row(name: str) -> tuple[dict[str, Any], int]:
    table = load("table5")
    [row] = [row for row in table["rows"] if row["model"] == name]
    return table["shared"] | row | {"learning_rate": [row["learning_rate"]]}, table["shared"]["epochs"]


def _combined_preset(paper: str, name: str, dataset: str, following: str) -> Preset:
    """Return the preset of a paper whose systems are combinations of an encoder and a method."""
    rules = load("presets", paper)
    encoder, method = _split_system(name, rules)
    overrides: Overrides = rules["all"] | rules["following"][following] | rules["methods"][method]
    if dataset == DEMO:
        demo = rules["demo"]
        hidden = {key: demo["hidden"] for key in overrides if key.endswith(".hidden")}
        own = demo.get("methods", {}).get(method, {})
        overrides |= demo["all"] | hidden | own | demo["encoders"].get(encoder, {})
    else:
        overrides |= rules["encoders"].get(encoder, {})
    overrides |= rules["datasets"][dataset]
    overrides = {key: for_dataset(value, dataset, encoder) for key, value in overrides.items()}
    overrides["train.patience"] = overrides["train.epochs"]
    notes = [*rules["notes_of_all"], *rules["notes_of"].get(encoder, []), *rules["notes_of"][method]]
    notes = ["left"] if dataset == DEMO else notes
    texts = [rules["notes"][note] for note in [*notes, *rules["notes_for"][dataset]]]
    return Preset(f"{paper}/{name}", dataset, following, _in_order(overrides), texts)


def _split_system(name: str, rules: Mapping[str, Any]) -> tuple[str, str]:
    """Return the encoder, which may be empty, and the method of a system."""
    for encoder in rules["encoders"]:
        if name.startswith(f"{encoder}-"):
            return encoder, name.removeprefix(f"{encoder}-")
    return "", name


def _description_preset(paper: str, name: str, dataset: str, following: str) -> Preset:
    """Return the preset of a system that describes images."""
    rules = load("presets", paper)
    pipeline = rules["pipelines"][_pipelines(paper)[name]]
    overrides: Overrides = pipeline["all"] | pipeline["methods"][name]
    overrides |= rules.get("following", {}).get(following, {}).get(name, {})
    overrides |= pipeline.get("datasets", {}).get(dataset, {})
    if dataset == DEMO:
        overrides |= {key: value for key, value in pipeline["demo"].items() if key in overrides}
    overrides = {key: for_dataset(value, dataset) for key, value in overrides.items()}
    for key in [each for each in overrides if each.endswith(".epochs")]:
        overrides[key.replace(".epochs", ".patience")] = overrides[key]
    about_dataset = pipeline.get("notes_for", rules["notes_for"])[dataset]
    notes = [*pipeline["notes"], *rules["notes_of"][name], *about_dataset]
    texts = [rules["notes"][note] for note in notes]
    return Preset(f"{paper}/{name}", dataset, following, completed(overrides), texts)


def _own_preset(name: str) -> Preset:
    if name not in own_names():
        allowed = ", ".join(own_names())
        raise InputError(f"there is no preset '{name}' for your own data; there are {allowed}")
    rules = _load(FOLDER / f"{OWN}.yaml")
    overrides = _in_order(rules["all"] | rules["presets"][split_address(name)[1]])
    return Preset(name, OWN, "paper", overrides, rules["notes"])


def _in_order(overrides: Overrides) -> Overrides:
    """Return overrides in the order of the sections, with one value for phases that are alike."""
    if TUNING not in overrides:
        overrides = {key: value for key, value in overrides.items() if not key.startswith("finetune.")}
    ordered = sorted(
        completed(overrides).items(), key=lambda item: list(SECTIONS).index(item[0].split(".")[0])
    )
    return {key: _collapse_phases(value) if key in PER_PHASE else value for key, value in ordered}


def _collapse_phases(value: Any) -> Any:
    """Return a single value if all phases have the same one."""
    return value[0] if isinstance(value, list) and len({str(each) for each in value}) == 1 else value


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_format_value(each) for each in value)}]"
    return str(value)


def _main_settings(chosen: Preset) -> str:
    """Return what distinguishes a preset from others of its kind, in one line."""
    if split_address(chosen.name)[0] in description_papers():
        value = {
            key.split(".", 1)[1]: setting
            for key, setting in chosen.overrides.items()
            if not key.startswith("tune_")
        }
        return (
            f"{pipeline_of(chosen.name):<11}{value['condition']:<10}{value['inject']:<8}{value['cell']:<10}"
            f"units {value['units']:<5}{'+'.join(_listed(value['learns']))}"
        )
    value = {
        key.removeprefix("train."): each for key, each in chosen.overrides.items() if key.startswith("train.")
    }
    if value["method"] != "steps":
        return f"method {value['method']}"
    losses, rates = _listed(value["loss"]), _listed(value["learning_rate"])
    k = f"({value['top_k_hinge.k']})" if value["loss"] == "top_k_hinge" else ""
    absolute = " abs" if value["absolute"] else ""
    ranks = any(_listed(value["rank_weight"]))  # without a ranking loss there is no margin
    terms = [*["+".join(each.removesuffix("_hinge") for each in losses) + k] * ranks]
    terms += ["instance"] * any(_listed(value["image_class_weight"]) + _listed(value["text_class_weight"]))
    loss = "+".join(terms)
    tuning = chosen.overrides.get(TUNING)
    tuned = f", then tuning {'+'.join(map(str, _listed(tuning)))}" if tuning else ""
    return (
        f"{loss:<13}{value['similarity'] + absolute:<11}"
        f"dim {value['embed_dim']:<5} word {value.get('word_dim', '-'):<5} "
        f"rate {', '.join(f'{rate:g}' for rate in rates):<14} margin {value['margin'] if ranks else '-':<5} "
        f"epochs {'+'.join([str(value['epochs'])] * max(len(losses), len(rates)))}{tuned}"
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
