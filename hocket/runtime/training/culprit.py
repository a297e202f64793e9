"""The rank that is the reason of a failure on the network, in the one line that training stops with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hocket.errors import HocketError
from hocket.launch.lost_peers import PeerLostError
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.transfers.channel import TransferError
from hocket.runtime.transfers.gloo_group import LostError

# Gloo has no errors of its own.
_OF_GLOO = ("gloo", "connection", "timed out", "timeout")


@contextlib.contextmanager
def naming_culprit(watch: LivenessWatch, *, for_next: bool = True) -> Iterator[None]:
    """Say of a failure on the network which rank is its reason, as ``watch`` knows.

    ``for_next``: whether what is waited for within needs the others in the next step, too.
    """
    try:
        with watch.waiting(for_next=for_next):
            yield
    except (TransferError, LostError, RuntimeError) as error:
        failure = (str(error) or repr(error)).splitlines()[0]
        if isinstance(error, RuntimeError) and not any(word in failure.lower() for word in _OF_GLOO):
            raise
        line, lost = watch.blame(failure)
        kind = PeerLostError if lost else HocketError
        raise kind(f"training stopped: {line}") from None
