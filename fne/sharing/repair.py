"""Sending objects to a remote again, whatever DVC believes it has sent."""

from collections.abc import Iterable
from contextlib import suppress

from fne.core.errors import InputError
from fne.sharing.check import MISSING, Fault
from fne.sharing.depot import Depot, plain

ABSENT = "this cache does not have it"
ROTTEN = " is damaged"


def send_again(faults: Iterable[Fault], cache: Depot, remote: Depot) -> dict[str, str]:
    """Send the objects of `faults` from the cache; each is read first, so that no damaged one is sent.

    A folder's list is sent after all files, as DVC does: who finds a list may expect the files.

    Returns:
        why objects could not be sent, by their digests.

    Raises:
        InputError: if the remote does not take them.
    """
    wanted = {fault.oid: fault for fault in faults}
    digests = cache.digests(cache.sizes(wanted))
    whole = {oid for oid, digest in digests.items() if digest == plain(oid)}
    lists = {oid for oid in whole if oid != plain(oid)}
    try:
        for oid in whole:
            if not wanted[oid].what.startswith(MISSING):
                with suppress(FileNotFoundError):
                    remote.odb.delete(oid)
        _send(sorted(whole - lists), cache, remote)
        _send(sorted(lists), cache, remote)
    except Exception as error:  # SSH and S3 clients each have errors of their own
        reason = " ".join(f"{error}".split())[:200] or type(error).__name__
        raise InputError(
            f"remote '{remote.name}' ({remote.url}) cannot be written to: {reason}; check your rights there"
        ) from None
    return {
        oid: f"{cache.path(oid)}{ROTTEN}" if oid in digests else ABSENT
        for oid in sorted(wanted.keys() - whole)
    }


def _send(oids: list[str], cache: Depot, remote: Depot) -> None:
    from dvc.fs.callbacks import TqdmCallback  # slow to import

    if oids:
        with TqdmCallback(desc=f"sending to {remote.name}", unit="file") as progress:
            paths = [cache.path(oid) for oid in oids]
            remote.odb.add(paths, cache.odb.fs, oids, check_exists=False, callback=progress)
