import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.datasets.captions import COMPOSED, EMOJI, LENGTHY, MENDED, UnusableCaptionError, clean


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "null"),
        ("", "empty"),
        (" \t\n", "empty"),
        ("\0\x7f", "empty"),
        ("...", "punctuation only"),
        ("?! $ — « »", "punctuation only"),
        ("a \ud83d dog", "not valid Unicode (a lone surrogate)"),
    ],
)
def test_a_caption_in_which_nothing_can_be_read_is_refused(raw, reason):
    with pytest.raises(UnusableCaptionError) as caught:
        clean(raw)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("raw", "caption", "notes"),
    [
        ("A dog .", "A dog .", []),
        ("  A dog . ", "A dog .", []),
        ("A\tdog\r\n\0.", "A dog .", [MENDED]),
        ("A  dog\u2028\u00a0.", "A dog .", [MENDED]),
        ("Cafe\u0301", "Café", [COMPOSED]),
        ("🐕", "🐕", [EMOJI]),
        ("7", "7", []),
        ("一只狗", "一只狗", []),
        ("dog " * 300, ("dog " * 300).strip(), [LENGTHY]),
    ],
)
def test_odd_captions_are_normalized_and_noted(raw, caption, notes):
    assert clean(raw) == (caption, notes)


@given(st.text(st.characters(), max_size=30))
def test_a_clean_caption_is_normal_writable_and_stays_as_it_is(raw):
    try:
        caption, _ = clean(raw)
    except UnusableCaptionError:
        return
    caption.encode()
    assert caption == " ".join(caption.split()) == unicodedata.normalize("NFC", caption)
    assert not any(unicodedata.category(character) == "Cc" for character in caption)
    assert clean(caption)[0] == caption
