"""A job with parameter servers as every process of it knows it; imports no torch, as commands do not."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from hocket.errors import HocketError
from hocket.launch.credentials import Credentials, credentials_of

JOB_VARIABLE = "HOCKET_JOB"
"""The environment variable that holds the job as JSON."""

NEW_TOKEN = "hocket train --new-token"
"""The command that prints a token with its private key."""

_MOST = 10_000

LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES = 1 << 16, (1 << 31) - 1
"""Bytes of the window that HTTP/2 begins a connection with, and of the largest that it has."""

Mode = Literal["sync", "async", "inference"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule by which pushes are applied and pulls are answered.

    ``sync``: a round's update is made of the gradients of the first ``workers`` - ``backup`` workers that
    bring them (Chen et al. 2016). ``async``: each worker's push is an update of its own; with ``staleness``
    no worker begins a step while another one is more than so many steps behind it (Ho et al. 2013).
    ``inference``: nobody pushes. ``barrier``: with "step" a worker's pulls wait until every parameter of
    their server is up to date, with "parameter" each waits for its own parameters alone.
    """

    mode: Mode = "sync"
    workers: int = 1
    barrier: Literal["step", "parameter"] = "step"
    staleness: int | None = None
    backup: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= _MOST:
            raise HocketError(f"{self.workers} workers cannot train; give 1 to {_MOST}")
        if self.staleness is not None and self.mode != "async":
            raise HocketError(
                f"staleness {self.staleness} is for mode 'async', not '{self.mode}'; leave it out"
            )
        if self.staleness is not None and self.staleness < 0:
            raise HocketError(f"a staleness of {self.staleness} steps is none; give 0 or more")
        if self.backup and self.mode != "sync":
            raise HocketError(f"backup {self.backup} is for mode 'sync', not '{self.mode}'; leave it out")
        if not 0 <= self.backup < self.workers:
            raise HocketError(f"backup {self.backup} of {self.workers} workers leaves none; give less")
        if self.backup and self.barrier == "parameter":
            raise HocketError(
                "backup workers take a barrier per step; leave out --barrier parameter, or give a plan that"
                " has no such barrier"
            )

    @property
    def needed(self) -> int:
        """The number of workers whose gradients make a synchronous update."""
        return self.workers - self.backup


class ServedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job: ``address`` is host:port of server 0, which tells workers where the other servers are.

    ``token``: the job's credentials, with the private key for servers. ``transport``: what tensors travel by;
    ``window_bytes``: with gRPC, HTTP/2's window, which predictions assume too. No wait takes longer than
    ``timeout_s``. ``seed`` decides random orders. ``checkpoint``: the folder, on each server's machine, in
    which it keeps what it has applied, and finds it when it is started again; "" for none.
    """

    address: str
    token: str
    rule: Rule
    servers: int = 1
    transport: Literal["gloo", "grpc"] = "gloo"
    window_bytes: int = 28_000_000  # gRPC's on average (Li et al., ICPE 2020, section 3.2.2)
    timeout_s: float = 1800.0
    seed: int = 0
    checkpoint: str = ""

    def __post_init__(self) -> None:
        split_address(self.address)
        if not 1 <= self.servers <= _MOST:
            raise HocketError(f"{self.servers} servers cannot serve; give 1 to {_MOST}")
        _ = self.credentials
        if not LEAST_WINDOW_BYTES <= self.window_bytes <= MOST_WINDOW_BYTES:
            raise HocketError(
                f"a window of {self.window_bytes} B is not between {LEAST_WINDOW_BYTES} and"
                f" {MOST_WINDOW_BYTES}; give e.g. 28000000"
            )
        if self.checkpoint and self.rule.mode == "inference":
            raise HocketError("mode 'inference' trains nothing that a checkpoint could hold; leave it out")
        if not 0 < self.timeout_s <= 1e9:
            raise HocketError(f"a timeout of {self.timeout_s} s is not between 0 and 1e9; give e.g. 600s")

    @property
    def credentials(self) -> Credentials:
        """The token's; HocketError where that is none."""
        return credentials_of(self.token, "a job", f"give it what '{NEW_TOKEN}' prints")

    @property
    def for_workers(self) -> ServedJob:
        """The same job without the servers' private key."""
        return msgspec.structs.replace(self, token=self.credentials.without_key.text)

    def encoded(self) -> str:
        """The job as :data:`JOB_VARIABLE` holds it."""
        return msgspec.json.encode(self).decode()


def job_of_environment() -> ServedJob | None:
    """The job that this process is part of; None where it is part of none."""
    text = os.environ.get(JOB_VARIABLE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=ServedJob)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise HocketError(f"{JOB_VARIABLE} is no job: {error}; start workers with hocket train") from None


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16
    if not host or not is_port:
        raise HocketError(f"'{address}' is not host:port; give e.g. 10.0.0.1:29500")
    host = host.strip("[]")
    try:
        host.encode("idna")  # as it is looked up
    except UnicodeError as error:
        raise HocketError(f"'{address}' names no host ({error}); give e.g. 10.0.0.1:29500") from None
    return host, int(port)
