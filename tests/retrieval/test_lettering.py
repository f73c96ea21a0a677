from hypothesis import given
from hypothesis import strategies as st

from fne.retrieval.lettering import MORE, cut, cut_middle, font, wrap

TEXTS = st.text(st.sampled_from("abc iWm.é"), max_size=60)


@given(TEXTS, st.integers(40, 200), st.integers(1, 4))
def test_wrapped_lines_fit_and_say_when_something_is_missing(text, width, most):
    face = font(16)
    lines = wrap(text, face, width, most)
    assert len(lines) <= most
    assert all(face.getlength(line) <= width for line in lines)
    shown = " ".join(lines)
    assert MORE in shown or shown == " ".join(text.split())


def test_a_text_is_cut_between_words_where_one_fits():
    assert wrap("a purple square at the bottom", font(16), width=100, most=1) == ["a purple …"]
    assert wrap("incomprehensibilities of all kinds", font(16), width=100, most=1) == ["incomprehe…"]


def test_the_last_word_is_not_left_out_for_the_sign_that_it_is():
    face = font(16)
    assert wrap("a dog i", face, width=int(face.getlength("a dog i")), most=1) == ["a dog i"]


@given(TEXTS, st.integers(40, 200))
def test_cut_text_fits_and_keeps_what_it_can(text, width):
    face = font(13)
    for shortened in (cut(text, face, width), cut_middle(text, face, width)):
        assert face.getlength(shortened) <= width
        assert (shortened == text) == (face.getlength(text) <= width)
    start, _, end = cut_middle(text, face, width).partition(MORE)
    assert text.startswith(start)
    assert text.endswith(end)
