"""Stage `tokenize`: captions as numbers of words, and pretrained vectors of the words."""

from pathlib import Path

import click

from fne.core.options import INPUT, OutputFiles, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.store.catalog import read_captions
from fne.store.lineage import check_records
from fne.text.caption_vectors import is_caption_store, write_caption_rows
from fne.text.tokenizer import tokenize_captions
from fne.text.tokens import TOKENS, VECTORS, VOCABULARY, write_words
from fne.text.vocabulary import Tokenize, choose_words
from fne.text.word_vectors import describe_vectors, known_words, load_vectors, write_word_vectors


@stage("tokenize", paths=["tokenize.vectors"])
@click.argument("captions", type=INPUT)
@click.argument("folder", type=OutputFiles(VOCABULARY, TOKENS, VECTORS))
@params_option
def main(captions: Path, folder: Path, params: Path) -> None:
    """Give every word of CAPTIONS a number, and write vocabulary and captions to FOLDER.

    Pretrained vectors of the words, or rows of the captions, become a file of their own.
    """
    settings = load_section(params, "tokenize", Tokenize)
    captioned, catalog = read_captions(captions)
    check_records(catalog)
    sentences = tokenize_captions(captioned, settings.lowercase, settings.end_of_sentence, settings.cut)
    in_vocabulary = [words for split, words in sentences.values() if split in settings.vocabulary]
    words = choose_words(in_vocabulary, settings.min_count)
    imported = is_caption_store(Path(settings.vectors))
    file = None if imported else load_vectors(Path(settings.vectors), words)
    recorded = settings.recorded(pretrained=file is not None)
    chosen = known_words(words, file, settings.without_vector)
    known, encoded = write_words(folder / VOCABULARY, folder / TOKENS, sentences, chosen, recorded, catalog)
    if imported:
        dim = write_caption_rows(folder / VECTORS, Path(settings.vectors), captioned, catalog)
        say(f"{settings.vectors}: a row of {dim} values for every caption")
    if file is not None:
        write_word_vectors(folder / VECTORS, known, file, settings.without_vector)
    say(f"{len(encoded)} captions, {len(known.words) - 1} words")
    if file is not None:
        summary, warnings = describe_vectors(file, words, sentences, encoded, captioned)
        say(summary)
        for warning in warnings:
            say(f"Warning: {warning}", err=True)


if __name__ == "__main__":
    main()
