"""`fne preset`: a method of the paper as overrides for `dvc exp run`."""

from fne.paper.presets import Preset, arguments, every_preset


def overrides(chosen: Preset) -> str:
    """Return a preset's overrides as one line, which a shell splits into the right words."""
    return " ".join(arguments(chosen.overrides))


def footnotes(chosen: Preset) -> str:
    """Return what there is to say about a preset, a paragraph for each note."""
    return "\n".join(f"{chosen.name}: {note}" for note in chosen.notes)


def listed(dataset: str, following: str) -> str:
    """Return all presets for a data set with what tells them apart, and their footnotes."""
    lines, notes = [], list[str]()
    for chosen in every_preset():
        if (chosen.dataset, chosen.following) != (dataset, following):
            continue
        notes += [note for note in chosen.notes if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in chosen.notes)
        lines.append(f"{chosen.name:<16}{_telling(chosen):<82} {marks}")
    return "\n".join([*lines, "", *(f"[{number}] {note}" for number, note in enumerate(notes, start=1))])


def _telling(chosen: Preset) -> str:
    value = {key.split(".")[1]: setting for key, setting in chosen.overrides.items()}
    losses = value["loss"] if isinstance(value["loss"], list) else [value["loss"]]
    rates = value["learning_rate"] if isinstance(value["learning_rate"], list) else [value["learning_rate"]]
    absolute = " abs" if value["absolute"] else ""
    return (
        f"{'+'.join(loss.removesuffix('_hinge') for loss in losses):<8}{value['similarity'] + absolute:<11}"
        f"dim {value['embed_dim']:<5} word {value['word_dim']:<5} "
        f"rate {', '.join(f'{rate:g}' for rate in rates):<14} margin {value['margin']:<5} "
        f"epochs {'+'.join([str(value['epochs'])] * max(len(losses), len(rates)))}"
    )
