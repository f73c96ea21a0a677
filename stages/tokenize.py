"""Stage `tokenize`: captions as numbers of words."""

from pathlib import Path

import click

from fne.captions.settings import Tokenize
from fne.captions.tokens import tokenize
from fne.captions.vocabulary import choose_words, read_vocabulary, write_vocabulary
from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.params import load_section
from fne.store.catalog import read_captions
from fne.store.lineage import merge
from fne.store.tokens import write_tokens


@click.command()
@click.argument("captions", type=INPUT)
@click.argument("vocabulary", type=OUTPUT)
@click.argument("tokens", type=OUTPUT)
@params_option
def main(captions: Path, vocabulary: Path, tokens: Path, params: Path) -> None:
    """Give every word of CAPTIONS a number in VOCABULARY, and write captions as TOKENS."""
    settings = load_section(params, "tokenize", Tokenize)
    captioned, catalog = read_captions(captions)
    sentences = {
        caption_id: (record.split, tokenize(caption, settings.lowercase, settings.end_of_sentence))
        for record in captioned
        for caption_id, caption in zip(record.caption_ids, record.captions, strict=True)
    }
    known = [words for split, words in sentences.values() if split in settings.vocabulary]
    write_vocabulary(vocabulary, choose_words(known, settings.min_count), settings.model_dump())
    numbers = read_vocabulary(vocabulary)
    encoded = {caption_id: numbers.encode(words) for caption_id, (_, words) in sentences.items()}
    made_with = settings.model_dump() | {"words": len(numbers.words)}
    write_tokens(tokens, encoded, made_with, merge(catalog, numbers.artifact))
    click.echo(f"{len(encoded)} captions, {len(numbers.words) - 1} words")


if __name__ == "__main__":
    main()
