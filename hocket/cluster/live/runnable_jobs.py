"""Jobs to be run, and what each of their ranks is started with.

``hocket.jobs/1`` with more about each job where there is more: the ``command`` of a rank, or a ``step`` and a
``plan`` to replay. Jobs without either are replayed from their times and sizes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from hocket.cluster.cluster import Cluster
from hocket.cluster.jobs import Job
from hocket.cluster.jobs_csv import is_csv
from hocket.cluster.jobs_file import JOBS_FORMAT, decode_jobs
from hocket.cluster.live.devices import MASK
from hocket.document import decode, read_bytes
from hocket.errors import FormatError
from hocket.launch.credentials import new_credentials
from hocket.launch.gate import (
    ATTEMPT_VARIABLE,
    BEGIN_VARIABLE,
    CHECKPOINT_VARIABLE,
    FINGERPRINT_VARIABLE,
    GATE_VARIABLE,
    TOKEN_VARIABLE,
)
from hocket.launch.job import split_address
from hocket.launch.traffic import TRAFFIC_VARIABLE, Leader, Traffic


class LiveJob(Job, frozen=True, kw_only=True):
    """A job with what its ranks run; ``folder``: where; ``restarts``: tries after its own failures."""

    command: tuple[str, ...] | None = None
    step: str | None = None
    plan: str | None = None
    folder: str | None = None
    restarts: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None

    @property
    def is_traffic(self) -> bool:
        """True if it is replayed from its times and sizes, and so asks before each of its tasks."""
        return self.command is None and self.step is None


class _Program(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a job's description that the simulator does not read."""

    id: str
    command: tuple[str, ...] | None = None
    step: str | None = None
    plan: str | None = None
    folder: str | None = None
    restarts: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


class _LiveFile(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["hocket.jobs/1"]
    jobs: tuple[_Program, ...]


def read_live_jobs(path: str | Path, restarts: int | None = None) -> tuple[LiveJob, ...]:
    """Read a ``hocket.jobs/1`` file; files that it names are looked for beside it.

    ``restarts``: of jobs that do not say themselves.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the field and the rule; for a field that no job has.
    """
    if is_csv(path):
        made = f"hocket cluster import jobs {path} -o jobs.json"
        raise FormatError(str(path), "", f"is CSV, and jobs that run are JSON; '{made}' makes it")
    beside = Path(path).resolve().parent
    return _live_jobs(read_bytes(path), str(path), beside, restarts)


def decode_live_jobs(data: bytes, source: str) -> tuple[LiveJob, ...]:
    """The jobs of a ``hocket.jobs/1`` document that is no file; ``source`` names it in errors.

    Raises
    ------
    FormatError, UnknownNameError
        As :func:`read_live_jobs` does, and for a path that is not absolute: there is no file beside it.
    """
    jobs = _live_jobs(data, source, None, None)
    for place, job in enumerate(jobs):
        for key in ("step", "plan", "folder"):
            if not Path(getattr(job, key) or "/").is_absolute():
                rule = f"'{getattr(job, key)}' is relative, and no file is beside it; give the whole path"
                raise FormatError(source, f"jobs[{place}].{key}", rule)
    return jobs


def _live_jobs(data: bytes, source: str, beside: Path | None, restarts: int | None) -> tuple[LiveJob, ...]:
    """The jobs in ``data``; ``beside``: where the files and folders are that they name."""
    programs = decode(data, _LiveFile, JOBS_FORMAT, source).jobs
    for place, program in enumerate(programs):
        check_program(program, f"{source}: jobs[{place}]")
    decoded = decode_jobs(data, source, _Program.__struct_fields__).jobs
    jobs = []
    for place, (job, program) in enumerate(zip(decoded, programs, strict=True)):
        if job.batches and program.command is None and program.step is None:
            rule = "are simulated only; name a command, or the step and its plan, or leave them out"
            raise FormatError(source, f"jobs[{place}].batches", f"{rule} (job '{job.id}')")
        # The engine of live jobs decides about whole transfers: ranks say when they are ready.
        known: dict[str, Any] = msgspec.structs.asdict(job) | {"batches": ()}
        for key in ("step", "plan"):
            if (value := getattr(program, key)) is not None:
                known[key] = value if beside is None else str(beside / value)
        folder = program.folder if beside is None else str(beside / (program.folder or "."))
        known["restarts"] = restarts if program.restarts is None else program.restarts
        jobs.append(LiveJob(**known, command=program.command, folder=folder))
    return tuple(jobs)


def check_program(job: LiveJob | _Program, source: str) -> None:
    """Refuse a job with several programs or an empty one; raises FormatError."""
    if job.command is not None and (job.step is not None or job.plan is not None):
        raise FormatError(
            source, "command", f"and a step or plan are two programs; give one (job '{job.id}')"
        )
    if job.command is not None and not (job.command and job.command[0]):
        raise FormatError(source, "command", f"is empty; name a program (job '{job.id}')")
    if (job.plan is None) != (job.step is None):
        missing = "step" if job.step is None else "plan"
        raise FormatError(source, missing, f"is missing; a step is replayed under a plan (job '{job.id}')")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job: ``number`` is the job's, ``attempt`` counts; ``gpus``: of each rank."""

    job: LiveJob
    number: int
    attempt: int
    gpus: tuple[int, ...]

    @property
    def iterations(self) -> int:
        """The job's iterations on so many GPUs."""
        return self.job.iterations_on(len(self.gpus))

    @property
    def name(self) -> str:
        """The name by which ranks present this attempt at the gate."""
        return f"{self.number}-{self.attempt}"

    def key(self, rank: int) -> str:
        """The name that a node has for one of its ranks."""
        return f"{self.name}-{rank}"

    def servers(self, cluster: Cluster) -> list[int]:
        """The server of each rank."""
        return [gpu // cluster.gpus_per_server for gpu in self.gpus]

    def token(self, secret: str) -> str:
        """The token of its ranks; it gives away neither the cluster's secret nor another job's token."""
        return attempt_token(secret, self.name)


def attempt_token(secret: str, name: str) -> str:
    """The token of the ranks of the attempt ``name``, made from the cluster's ``secret``."""
    return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class GateAccess:
    """The gate for the ranks of an attempt: its address for each, what they have to know, its certificate's
    fingerprint.
    """

    addresses: Sequence[str]
    token: str
    fingerprint: str


class KeptWork(NamedTuple):
    """The work of earlier attempts that an attempt goes on from.

    Attributes
    ----------
    folder : the absolute path of the folder of the job's checkpoints.
    iterations : iterations that have been run.
    """

    folder: str
    iterations: int


def environments(
    attempt: Attempt,
    cluster: Cluster,
    *,
    leaders: Sequence[Leader],
    gate: GateAccess,
    devices: Sequence[Sequence[str]],
    kept_work: KeptWork,
    chunk_bytes: int,
) -> list[dict[str, str]]:
    """The variables that each rank gets beside its node's environment: torchrun's, the gate, its traffic.

    leaders: of each of the job's servers, in order, where nothing listens yet; devices: the GPUs of
    each server of the cluster; chunk_bytes: after which replayed jobs ask again.
    """
    servers = attempt.servers(cluster)
    different = list(dict.fromkeys(servers))
    host, port = split_address(leaders[0].address)
    meeting = new_credentials()
    found = []
    for rank, (server, address) in enumerate(zip(servers, gate.addresses, strict=True)):
        mine = [other for other, at in enumerate(servers) if at == server]
        slots = [attempt.gpus[each] % cluster.gpus_per_server for each in mine]
        group, local = different.index(server), mine.index(rank)
        told = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(len(servers)),
            "LOCAL_WORLD_SIZE": str(len(mine)),
            "GROUP_RANK": str(group),
            "GROUP_WORLD_SIZE": str(len(different)),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(len(servers)),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": attempt.name,
            "TORCHELASTIC_RESTART_COUNT": str(attempt.attempt - 1),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            MASK: ",".join(devices[server][slot] for slot in slots if devices[server]),
            GATE_VARIABLE: address,
            ATTEMPT_VARIABLE: attempt.name,
            TOKEN_VARIABLE: gate.token,
            FINGERPRINT_VARIABLE: gate.fingerprint,
            CHECKPOINT_VARIABLE: kept_work.folder,
            BEGIN_VARIABLE: str(kept_work.iterations),
        }
        if attempt.job.is_traffic:
            speed = attempt.job.speed_on(cluster.type_names()[attempt.gpus[rank]]) or 1.0
            is_leader = local == 0 and len(different) > 1
            told[TRAFFIC_VARIABLE] = msgspec.json.encode(
                Traffic(
                    iterations=attempt.iterations,
                    forward_s=attempt.job.forward_s / speed,
                    backward_s=attempt.job.backward_s / speed,
                    size_bytes=int(attempt.job.size_bytes),
                    chunk_bytes=chunk_bytes,
                    leaders=list(leaders) if len(different) > 1 else [],
                    place=group if is_leader else None,
                    token=meeting.text if is_leader else "",
                )
            ).decode()
        found.append(told)
    return found


def command_of(attempt: Attempt, python: str) -> list[str]:
    """The command that each rank executes; ``python``: the interpreter of its machine."""
    job = attempt.job
    if job.command is not None:
        return list(job.command)
    if job.step is not None:
        assert job.plan is not None
        program = [python, "-P", "-m", "hocket.runtime.replay.rank"]
        return [*program, job.step, job.plan, str(attempt.iterations)]
    return [python, "-P", "-m", "hocket.launch.traffic"]
