"""A replay with AllReduce: gradients go through the runtime's channel, as in real training."""

from __future__ import annotations

import threading
from collections import Counter, deque

import torch

from hocket.graph import Plan, StepGraph
from hocket.runtime.replay.replayed_processor import Mailbox
from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.channel import Channel
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.plan_layout import lay_out

_FLOAT_BYTES = 4


class Reductions:
    """The buckets of ``plan`` on ``groups``; a bucket's number is the message that its readers wait for.

    A step waits for the last one's buckets: for those of window "backward" before it begins, for others where
    they are first read; and a gradient is not written before its buffer has been reduced. To be used as a
    context: its threads end with it.
    """

    def __init__(
        self, plan: Plan, graph: StepGraph, groups: ChannelGroups, mailbox: Mailbox, timeout_s: float
    ) -> None:
        # Zeros are reduced, which stay zeros however often they are summed.
        parameters = {
            name: torch.nn.Parameter(torch.zeros(max(1, size // _FLOAT_BYTES)))
            for name, size in zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True)
        }
        self._layout = lay_out(plan, parameters)
        for each in self._layout.buckets:
            each.allocate()
        self._number = {bucket: k for k, bucket in enumerate(self._layout.buckets)}
        of_parameter = {name: self._number[b] for b in self._layout.buckets for name in b.names}
        names = graph.parameter_names
        self._produces = [
            [of_parameter[names[p]] for p in graph.produces.row(i)] for i in range(graph.num_operations)
        ]
        reads = [
            [of_parameter[names[p]] for p in graph.reads.row(i) if names[p] in of_parameter]
            for i in range(graph.num_operations)
        ]
        self.needs = [sorted({*read, *made}) for read, made in zip(reads, self._produces, strict=True)]
        self._to_fill = [0] * len(self._number)
        for buckets in self._produces:
            for bucket in buckets:
                self._to_fill[bucket] += 1
        self._missing = list(self._to_fill)
        self._pieces = {transfer.name: transfer.bucket for transfer in self._layout.transfers}
        self._pieces_of = Counter(transfer.bucket for transfer in self._layout.transfers)
        self._reduced_pieces: Counter[Bucket] = Counter()
        self._counting = threading.Lock()
        self._mailbox = mailbox
        self._early_arrivals: deque[tuple[int, float]] = deque()
        self._channel = Channel(groups, timeout_s, self._note_reduction)
        mailbox.failure = lambda: self._channel.error

    @property
    def num_messages(self) -> int:
        """The number of buckets."""
        return len(self._number)

    def __enter__(self) -> Reductions:
        self._channel.start(self._layout)
        for number in self._number.values():
            self._mailbox.deliver(number)  # nothing to wait for in the first step
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.stop()

    def begin(self, ended_s: float) -> float:
        """Wait for what the next step waits for; when it begins, the last one having ended at ``ended_s``."""
        due = {number for bucket, number in self._number.items() if not bucket.forward}
        begin_s = ended_s
        came = list(self._mailbox.take(wait=False))
        while True:
            for number, moment_s in came:
                if number in due:
                    due.discard(number)
                    begin_s = max(begin_s, moment_s)
                self._early_arrivals.append((number, moment_s))
            if not due:
                return begin_s
            came = self._mailbox.take(wait=True)

    def take(self, *, wait: bool) -> list[tuple[int, float]]:
        """The buckets that arrived, with their moments; those that :meth:`begin` saw included."""
        held = list(self._early_arrivals)
        self._early_arrivals.clear()
        return held + self._mailbox.take(wait=wait and not held)

    def send_buckets_of(self, op: int) -> None:
        """``op``'s gradients are complete: send the buckets that they fill."""
        for number in self._produces[op]:
            self._missing[number] -= 1
            if self._missing[number] == 0:
                self._missing[number] = self._to_fill[number]
                self._channel.submit(self._layout.buckets[number])

    def _note_reduction(self, name: str, start_s: float, end_s: float) -> None:
        """A piece has been reduced, says one of the channel's threads."""
        bucket = self._pieces[name]
        with self._counting:  # pieces of a bucket may end in several threads at once
            self._reduced_pieces[bucket] = (self._reduced_pieces[bucket] + 1) % self._pieces_of[bucket]
            last = self._reduced_pieces[bucket] == 0
        if last:
            self._mailbox.deliver(self._number[bucket])
