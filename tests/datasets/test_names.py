import pytest

from fne.datasets.names import unsafe


@pytest.mark.parametrize(
    "name", ["a.jpg", "val2014/a.jpg", "ä ö.jpg", "..jpg", "a..b/c...jpg", "a\nb.jpg", "C4:1.jpg"]
)
def test_ordinary_and_odd_names_below_the_folder_are_fine(name):
    assert unsafe(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../a.jpg", "points outside the image folder"),
        ("a/../../x.jpg", "points outside the image folder"),
        ("a/..", "points outside the image folder"),
        ("a\\..\\b.jpg", "points outside the image folder"),
        ("/etc/passwd", "is an absolute path"),
        ("C:\\a.jpg", "is an absolute path"),
        ("\\\\server\\share\\a.jpg", "is an absolute path"),
        ("a\0.jpg", "contains a NUL character"),
        ("\ud800.jpg", "is not valid Unicode"),
        ("", "is empty"),
        (" ", "is empty"),
    ],
)
def test_names_that_leave_the_folder_or_name_no_file_are_refused(name, fault):
    assert unsafe(name) == fault
