"""Facts of one rank that training depends on: its software, and the machine that it runs on."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

import hocket
from hocket.doctor.interfaces import Interface, interfaces
from hocket.memory import available_bytes

SHARED_MEMORY = Path("/dev/shm")
_ASKED = ("GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT")


class GivenPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a rank was given: a policy's name and a digest of all of it, or why there is none."""

    name: str = ""
    digest: str = ""
    error: str = ""


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's facts; what is not known is None or empty.

    ``machine`` tells network namespaces apart, which are machines to gloo. ``cuda`` and ``nccl`` are the
    versions that torch was built with; ``cuda_available``: whether it could use a GPU now. ``gloo_address``
    is that of the host's name, which gloo takes where no interface is named. Every field has a default: facts
    of another version of Hocket are read, too.
    """

    rank: int = 0
    host: str = ""
    machine: str = ""
    hocket: str = ""
    torch: str = ""
    python: str = ""
    cuda: str | None = None
    cuda_available: bool = False
    nccl: str | None = None
    gpus: list[str] = []
    backends: list[str] = []
    interfaces: list[Interface] = []
    gloo_address: str | None = None
    shared_memory_path: str = ""
    shared_memory_bytes: int | None = None
    shared_memory_free_bytes: int | None = None
    memory_free_bytes: float | None = None
    open_files_limit: int | None = None
    processors: int = 0
    threads: int = 0
    plan: GivenPlan = GivenPlan()
    environment: dict[str, str] = {}

    @property
    def named_interfaces(self) -> list[str]:
        """The interfaces that GLOO_SOCKET_IFNAME names."""
        return [name for name in self.environment.get("GLOO_SOCKET_IFNAME", "").split(",") if name]


def rank_facts(
    rank: int,
    plan: GivenPlan,
    *,
    environment: Mapping[str, str] = os.environ,
    shared_memory: Path = SHARED_MEMORY,
) -> RankFacts:
    """The facts of this process; ``shared_memory``: where programs share memory on this machine."""
    shared = _space(shared_memory)
    return RankFacts(
        rank=rank,
        host=socket.gethostname(),
        machine=_machine(),
        hocket=hocket.__version__,
        torch=str(torch.__version__),
        python=platform.python_version(),
        cuda=torch.version.cuda,
        cuda_available=torch.cuda.is_available(),
        nccl=_nccl(),
        gpus=[torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        backends=_backends(),
        interfaces=interfaces(),
        gloo_address=_address_of_name(),
        shared_memory_path=str(shared_memory),
        shared_memory_bytes=None if shared is None else shared.f_blocks * shared.f_frsize,
        shared_memory_free_bytes=None if shared is None else shared.f_bavail * shared.f_frsize,
        memory_free_bytes=available_bytes(),
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        processors=len(os.sched_getaffinity(0)),
        threads=torch.get_num_threads(),
        plan=plan,
        environment={name: environment[name] for name in _ASKED if name in environment},
    )


def _machine() -> str:
    """A name that no other network namespace of any running machine has."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:  # not on Linux
        return socket.gethostname()


def _space(path: Path) -> os.statvfs_result | None:
    try:
        return os.statvfs(path)
    except OSError:
        return None


def _backends() -> list[str]:
    there = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
    return [name for name, is_available in there.items() if is_available()]


def _nccl() -> str | None:
    if not dist.is_nccl_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _address_of_name() -> str | None:
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
