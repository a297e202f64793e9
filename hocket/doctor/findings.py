"""Rules that a job's ranks have to keep; a broken one is a line with the value, the rule and the fix."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence

import msgspec

from hocket.doctor.rank_facts import RankFacts
from hocket.text import listed, scaled_text

# A batch of 32 images of 224 x 224 in float32 is 19 MB, and a DataLoader with two workers holds five of them.
LEAST_SHARED_BYTES = 100_000_000
# Connections of the script's group and of ours with each other rank, and what Python and torch hold open.
_FILES_PER_RANK, _OTHER_FILES = 8, 128
STOPS_TEST = frozenset({"hocket", "torch", "interface", "ranks"})
"""The subjects of findings with which ranks may not even meet."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: what it is about, and one line with the value, the rule and the fix."""

    about: str
    line: str


def findings(ranks: Sequence[RankFacts]) -> list[Finding]:
    """All that is wrong with ``ranks``, in the order in which it is to be mended."""
    rules: dict[str, Callable[[Sequence[RankFacts]], Iterator[str]]] = {
        "hocket": _other_hocket,
        "torch": _other_torch,
        "interface": _wrong_interface,
        "shared memory": _little_shared_memory,
        "open files": _few_files,
        "plan": _other_plan,
    }
    return [Finding(about=about, line=line) for about, rule in rules.items() for line in rule(ranks)]


def ranks_text(numbers: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0-3 and 6``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(parts)}"


def _others(ranks: Sequence[RankFacts], key: Callable[[RankFacts], str]) -> Iterator[tuple[str, str]]:
    """Values of ``key`` that are not rank 0's, each behind the ranks that have it."""
    having: dict[str, list[int]] = {}
    for each in ranks:
        having.setdefault(key(each), []).append(each.rank)
    own = key(ranks[0])
    for value, numbers in having.items():
        if value != own:
            yield f"{ranks_text(numbers)} {'have' if len(numbers) > 1 else 'has'}", value


def _other_hocket(ranks: Sequence[RankFacts]) -> Iterator[str]:
    for who, version in _others(ranks, lambda each: each.hocket):
        yield (
            f"{who} hocket {version}, rank 0 has {ranks[0].hocket}; all ranks need the same:"
            f" install one of them on every machine"
        )


def _other_torch(ranks: Sequence[RankFacts]) -> Iterator[str]:
    for who, version in _others(ranks, lambda each: each.torch):
        own = ranks[0].torch
        yield (
            f"{who} torch {version}, rank 0 has {own}; all ranks need the same:"
            f" pip install torch=={own.partition('+')[0]} on every machine"
        )


def _other_plan(ranks: Sequence[RankFacts]) -> Iterator[str]:
    for who, why in _together((each, each.plan.error) for each in ranks):
        yield f"{who}: {why}"
    given = [each for each in ranks if not each.plan.error]
    if not given:
        return
    first, names = given[0], {each.plan.digest: each.plan.name for each in given}
    for who, digest in _others(given, lambda each: each.plan.digest):
        yield (
            f"{who} plan '{names[digest]}' (digest {digest}), rank {first.rank} has '{first.plan.name}'"
            f" ({first.plan.digest}); give every rank the same file"
        )


def _wrong_interface(ranks: Sequence[RankFacts]) -> Iterator[str]:
    several = len({each.machine for each in ranks}) > 1
    for who, reason in _together((each, _interface_reason(each, several)) for each in ranks):
        yield f"{who}: {reason}"


def _interface_reason(facts: RankFacts, several: bool) -> str:
    """The reason why gloo cannot connect this rank to the others by the interface that it takes, or none."""
    there = {each.name: each for each in facts.interfaces}
    usable = [e.name for e in facts.interfaces if e.up and e.addresses and not (several and e.loopback)]
    fix = f"set it to {' or '.join(usable)}" if usable else "give this machine an interface with an address"
    for name in facts.named_interfaces:
        named, given = there.get(name), f"GLOO_SOCKET_IFNAME is {name}"
        if named is None:
            return f"{given}, and {facts.host} has no such interface; {fix}"
        if not named.up:
            return f"{given}, which is down; {fix}, or ip link set {name} up"
        if not named.addresses:
            return f"{given}, which has no address; {fix}"
        if several and named.loopback:
            return f"{given}, by which no other machine is reached; {fix}"
    if several and not facts.named_interfaces and _is_loopback(facts.gloo_address):
        return (
            f"{facts.host} resolves to {facts.gloo_address}, which no other machine reaches;"
            f" GLOO_SOCKET_IFNAME names the interface: {fix}"
        )
    return ""


def _is_loopback(address: str | None) -> bool:
    # Where the name does not resolve, gloo takes the loopback.
    return address is None or ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _little_shared_memory(ranks: Sequence[RankFacts]) -> Iterator[str]:
    for here in _by_machine(ranks):
        first, needed = here[0], LEAST_SHARED_BYTES * len(here)
        path, free = first.shared_memory_path, first.shared_memory_free_bytes
        size, host = first.shared_memory_bytes, first.host
        if free is None or size is None:
            yield f"{host} has no {path}, where DataLoaders pass batches; mount -t tmpfs tmpfs {path}"
        elif free < needed:
            fix = f"docker run --shm-size=1g, or mount -o remount,size=1g {path}"
            if size >= 2 * needed:  # it is full, not small
                fix = f"remove what is left in {path}, or {fix}"
            yield (
                f"{path} of {host} has {scaled_text(free, 'B')} free of {scaled_text(size, 'B')}, and"
                f" DataLoaders of {ranks_text([each.rank for each in here])} take {scaled_text(needed, 'B')};"
                f" {fix}"
            )


def _few_files(ranks: Sequence[RankFacts]) -> Iterator[str]:
    needed = _OTHER_FILES + _FILES_PER_RANK * (len(ranks) - 1)
    few = [(each, each.open_files_limit) for each in ranks if each.open_files_limit is not None]
    for who, limit in _together((each, str(limit) if limit < needed else "") for each, limit in few):
        yield (
            f"{who}: {limit} files may be open, and connections of {len(ranks)} ranks take about {needed};"
            f" ulimit -n {max(4096, 2 * needed)}"
        )


def _by_machine(ranks: Sequence[RankFacts]) -> list[list[RankFacts]]:
    machines: dict[str, list[RankFacts]] = {}
    for each in ranks:
        machines.setdefault(each.machine, []).append(each)
    return list(machines.values())


def _together(reasons: Iterator[tuple[RankFacts, str]]) -> list[tuple[str, str]]:
    """Every reason once, behind the ranks that have it; those without one are left out."""
    having: dict[str, list[int]] = {}
    for facts, reason in reasons:
        if reason:
            having.setdefault(reason, []).append(facts.rank)
    return [(ranks_text(numbers), reason) for reason, numbers in having.items()]
