import grp
import os
import stat

import pytest

from fne.sharing.folders import create_shared_folder, ignores_umask, is_shared
from tests.support.refusals import refused


@pytest.fixture
def group() -> str:
    return grp.getgrgid(os.getgid()).gr_name


def test_the_group_may_change_new_files_whatever_the_umask(tmp_path, group):
    create_shared_folder(tmp_path / "team", group)
    before = os.umask(0o077)
    try:
        (tmp_path / "team/scratch/kind").mkdir()
        (tmp_path / "team/scratch/kind/aa.rows").write_bytes(b"row")
    finally:
        os.umask(before)
    if not ignores_umask(tmp_path / "team/scratch"):
        pytest.skip("this file system has no access control lists")
    assert stat.S_IMODE((tmp_path / "team/scratch/kind").stat().st_mode) == 0o2770
    assert stat.S_IMODE((tmp_path / "team/scratch/kind/aa.rows").stat().st_mode) == 0o660


def test_others_have_no_access_and_the_folder_can_be_joined_without_naming_the_group(tmp_path, group):
    create_shared_folder(tmp_path / "team", group)
    assert stat.S_IMODE((tmp_path / "team").stat().st_mode) == 0o2770
    create_shared_folder(tmp_path / "team", None)
    assert is_shared(tmp_path / "team/cache")


def test_the_first_time_a_group_that_exists_must_be_named(tmp_path):
    with refused("team: name the group to share it with: --group NAME; your groups are "):
        create_shared_folder(tmp_path / "team", None)
    with refused("--group: there is no group 'nobodies'; create it with `sudo groupadd nobodies`"):
        create_shared_folder(tmp_path / "team", "nobodies")


@pytest.mark.parametrize("name", ["", "cache", "scratch"])
def test_no_symbolic_link_is_followed(tmp_path, group, name):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    team = tmp_path / "team"
    if name:
        team.mkdir()
        (team / name).symlink_to(private, target_is_directory=True)
    else:
        team.symlink_to(private, target_is_directory=True)
    with refused("is a symbolic link, which is not followed"):
        create_shared_folder(team, group)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
