import numba
import pytest

from fne.features.threads import share_out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_item_is_worked_on_once(threads, count):
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, before))
    done = []
    share_out(lambda first, last: done.extend(range(first, last)), count)
    numba.set_num_threads(before)
    assert sorted(done) == list(range(count))


def test_a_fault_in_a_share_is_not_swallowed():
    def fail(first, last):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        share_out(fail, 5)
