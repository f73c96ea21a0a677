import grp
import os
import stat

import pytest

from fne.core.errors import InputError
from fne.sharing.shared import ignores_umask, is_shared, make_shared


@pytest.fixture
def group() -> str:
    return grp.getgrgid(os.getgid()).gr_name


def test_everything_made_there_is_the_groups_whatever_the_umask(tmp_path, group):
    make_shared(tmp_path / "team", group)
    before = os.umask(0o077)
    try:
        (tmp_path / "team/scratch/kind").mkdir()
        (tmp_path / "team/scratch/kind/aa.rows").write_bytes(b"row")
    finally:
        os.umask(before)
    if not ignores_umask(tmp_path / "team/scratch"):
        pytest.skip("this file system has no access lists")
    assert stat.S_IMODE((tmp_path / "team/scratch/kind").stat().st_mode) == 0o2770
    assert stat.S_IMODE((tmp_path / "team/scratch/kind/aa.rows").stat().st_mode) == 0o660


def test_others_stay_outside(tmp_path, group):
    make_shared(tmp_path / "team", group)
    assert stat.S_IMODE((tmp_path / "team").stat().st_mode) == 0o2770


def test_a_shared_folder_is_joined_without_naming_the_group(tmp_path, group):
    make_shared(tmp_path / "team", group)
    make_shared(tmp_path / "team", None)
    assert is_shared(tmp_path / "team/cache")


def test_the_first_time_the_group_must_be_named(tmp_path):
    with pytest.raises(
        InputError, match=r"team: name the group to share it with: --group NAME; yours are \w+"
    ):
        make_shared(tmp_path / "team", None)


def test_an_unknown_group_is_an_error(tmp_path):
    with pytest.raises(
        InputError, match="--group: there is no group 'nobodies'; make it with `sudo groupadd nobodies`"
    ):
        make_shared(tmp_path / "team", "nobodies")
