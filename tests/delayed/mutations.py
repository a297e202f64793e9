"""Training with one wait left out: what the delayed device has to show."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_ROUNDS, _CHANNEL = "hocket.runtime.training.rounds", "hocket.runtime.transfers.channel"
_FILLING = "hocket.runtime.training.bucket_filling"
_GROUP = "hocket.runtime.transfers.gloo_group"
_SETUP, _FLAGS = "hocket.runtime.training.allreduce_setup", "hocket.runtime.transfers.used_flags"
_STARTED = """\
                with self._condition:
                    transfer.bucket.missing_transfers -= 1
                    self._condition.notify()
"""
_BROUGHT = """\
                ended = self._device.mark()
                powers = None if self._norms is None else self._norms.fetch_powers(transfer)
"""
_FILLED = "bucket.stream, bucket.last_use = self._device.stream(), self._device.record()"


@dataclass(frozen=True)
class Mutation:
    """``old`` in the source of ``module`` becomes ``new``; ``sums_up``: on a device with collectives."""

    module: str
    old: str
    new: str
    sums_up: bool = False


MUTATIONS = {
    "transfers start before gradients are there": Mutation(
        _CHANNEL, "self._device.wait(bucket.last_use)", "pass"
    ),
    "transfers start when gradients are asked for": Mutation(
        _CHANNEL, "if bucket.last_use is None:", "if True:"
    ),
    "filling is no event": Mutation(_FILLING, _FILLED, "bucket.stream = self._device.stream()"),
    "the first gradient stands for its bucket": Mutation(
        _FILLING, _FILLED, "if len(bucket.filled_indices) <= 1:\n            " + _FILLED
    ),
    "gradients do not follow each other": Mutation(_FILLING, "self._device.follow(bucket.last_use)", "pass"),
    "shorter gradients are no event": Mutation(
        _FILLING,
        "shorten(bucket.short_dtype, self._num_ranks)\n            self._end_write(bucket)",
        "shorten(bucket.short_dtype, self._num_ranks)",
    ),
    "updates do not follow arrivals": Mutation(_ROUNDS, "self._device.follow(arrival)", "pass"),
    "updates follow the first arrival alone": Mutation(
        _ROUNDS, "for arrival in bucket.arrivals:", "for arrival in bucket.arrivals[:1]:"
    ),
    "readers do not follow updates": Mutation(
        _ROUNDS,
        "bucket.last_use = self._updated\n                self._device.follow(self._updated)\n",
        "bucket.last_use = self._updated\n",
    ),
    "passes do not follow updates": Mutation(
        _ROUNDS, "self._device.follow(self._updated)  # of those, too", "pass  # of those, too"
    ),
    "updates do not follow each other": Mutation(
        _ROUNDS, "self._device.follow(self._updated)  # so that the last stands for all", "pass"
    ),
    "updates are no event": Mutation(_ROUNDS, "self._updated = self._device", "_ = self._device"),
    "updates run on the stream of their reader": Mutation(
        _ROUNDS, "with self._device.on(taken[0].stream):", "if True:"
    ),
    "a bucket is used when its transfers have started": Mutation(
        _CHANNEL,
        "                work.wait()\n",
        _STARTED + "                work.wait()\n                transfer.bucket.missing_transfers += 1\n",
    ),
    "a bucket is not waited for": Mutation(
        _CHANNEL, "lambda: not bucket.missing_transfers, places", "lambda: True, places"
    ),
    "arrivals are no events": Mutation(_CHANNEL, "arrival = self._device.record()", "arrival = None"),
    "an arrival is that of what was before it": Mutation(
        _CHANNEL,
        "                work.wait()\n" + _BROUGHT + "                arrival = self._device.record()\n",
        "                arrival = self._device.record()\n                work.wait()\n" + _BROUGHT,
    ),
    "collectives of the device are not followed": Mutation(
        _CHANNEL, "                work.wait()\n", "", sums_up=True
    ),
    "gloo is given what is not fetched": Mutation(_GROUP, "device.wait(device.record())", "pass"),
    "buffers are sent before they are there": Mutation(
        "hocket.runtime.transfers.buffer_broadcasts", "self.device.wait(filled)", "pass"
    ),
    "gloo is given memory of the device": Mutation(_GROUP, "if fetched is None:", "if True:"),
    "sums are not brought back": Mutation(
        _GROUP, "self._tensor.copy_(self._fetched, non_blocking=True)", "pass"
    ),
    "sums are brought back before they are there": Mutation(
        _GROUP,
        "        self._work.wait()\n        self._tensor.copy_(self._fetched, non_blocking=True)\n",
        "        self._tensor.copy_(self._fetched, non_blocking=True)\n        self._work.wait()\n",
    ),
    "others' flags are not waited for": Mutation(_ROUNDS, "if not self._used.known:", "if False:"),
    "flags are this rank's": Mutation(_FLAGS, "work.wait()", "pass"),
    "flags are read on the device": Mutation(
        _SETUP, "FlagsInBuckets() if device is PROCESSORS else FlagsOnHost(control)", "FlagsInBuckets()"
    ),
    "buckets are the host's": Mutation(
        "hocket.runtime.transfers.bucket_memory",
        "first.detach().new_zeros(max(end + num_flags, end_of_pieces))",
        "torch.zeros(max(end + num_flags, end_of_pieces))",
    ),
    "gradients that are read are not waited for": Mutation(
        _ROUNDS,
        "            self.finish(bucket)\n\n    def _wait",
        "            pass\n\n    def _wait",
    ),
    "a plan's buckets go while they are in use": Mutation(
        _FILLING, "self._device.wait(bucket.last_use)", "pass"
    ),
    "halves follow each other when the first is asked for": Mutation(
        _CHANNEL, "self._device.wait(arrival)", "pass"
    ),
    "norms are those of the step before": Mutation(
        _CHANNEL, "self._wait_for_places(lambda: self.knows_norms(bucket), places", "(lambda *_: None)(places"
    ),
    "what is scaled later does not follow its factors": Mutation(
        _ROUNDS, "self._device.follow(scaled)", "pass"
    ),
    "threads of transfers have no streams": Mutation(_CHANNEL, "with self._device.own_stream():", "if True:"),
}
"""By what is left out."""


def mutate(name: str) -> None:
    """Have the module of that mutation, which is not imported yet, imported as it says."""
    sys.meta_path.insert(0, _Finder(MUTATIONS[name]))


def mutated(source: str, mutation: Mutation) -> str:
    """``source`` of that module with one place of it changed."""
    assert source.count(mutation.old) == 1, mutation
    return source.replace(mutation.old, mutation.new)


class _Finder:
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._mutation)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> Any:
        source = self.get_source(fullname)
        assert source is not None
        return compile(mutated(source, self._mutation), self.path, "exec")
