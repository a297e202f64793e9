"""Slurm on the nodes of a lab, with its accounting: daemons of a test's own, which end with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hocket.lab import Lab, LabNode

GPUS = 8
DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd")
_FREEZER = Path("/sys/fs/cgroup/freezer")


def lacking() -> str | None:
    """The reason why no Slurm can be started here, if there is one."""
    for daemon in DAEMONS:
        if shutil.which(daemon) is None:
            return f"{daemon} is not installed: scripts/install-debian-packages.sh"
    return None if _FREEZER.is_dir() else f"Slurm tracks processes by {_FREEZER}, which this kernel has not"


@contextlib.contextmanager
def slurm_on(lab: Lab, folder: Path) -> Iterator[dict[str, str]]:
    """A Slurm whose controller is on the first node; what its commands need in their environment.

    Each node has eight GPUs, which are numbers, and processes are tracked by cgroups. All is in ``folder``.
    """
    environment = _configured(lab, folder)
    first, names = lab.nodes[0], _node_names(lab)
    with contextlib.ExitStack() as daemons:
        daemons.callback(_remove_cgroups, names)

        def start(node: LabNode, *command: str) -> subprocess.Popen[bytes]:
            said = daemons.enter_context(open(folder / f"{command[0]}.out", "a"))
            daemon = lab.popen(node, command, environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            daemons.callback(_end, daemon)
            return daemon

        munge = [f"--{file}-file={folder}/munge/{file}" for file in ("key", "pid", "log", "seed")]
        start(first, "munged", "--foreground", f"--socket={folder}/munge/socket", *munge)
        until((folder / "munge" / "socket").exists)
        database = environment["MYSQL_UNIX_PORT"]
        install = ["mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db"]
        subprocess.run([*install, f"--datadir={folder}/rows"], check=True, capture_output=True)
        at = (f"--datadir={folder}/rows", f"--socket={database}", f"--pid-file={folder}/mariadbd.pid")
        start(first, "mariadbd", "--no-defaults", "--user=root", "--skip-networking", *at)
        until(Path(database).exists)
        start(first, "slurmdbd", "-D")
        until(lambda: _run(lab, ["sacctmgr", "--noheader", "show", "cluster"], environment).returncode == 0)
        start(first, "slurmctld", "-D")
        for node, name in zip(lab.nodes, names, strict=True):
            start(node, *_named(name), "slurmd", "-D", "-N", name)
        until(lambda: _run(lab, ["sinfo", "-h", "-o", "%T %D"], environment).stdout == f"idle {len(names)}\n")
        try:
            yield environment
        finally:
            _run(lab, ["scancel", "--user", "root"], environment)
            until(lambda: not _run(lab, ["squeue", "-h"], environment).stdout)


def until(due: Callable[[], bool]) -> None:
    """Wait until it is."""
    deadline = time.monotonic() + 100
    while not due():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _remove_cgroups(names: list[str]) -> None:
    """Remove what ended daemons leave of theirs."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            (_FREEZER / f"slurm_{name}").rmdir()


def _named(host: str) -> tuple[str, ...]:
    """What runs the command behind it on a host of this name: nodes of one name would be one machine."""
    return ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(30)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _run(lab: Lab, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    inside, own = lab.command(lab.nodes[0], command, environment)
    return subprocess.run(inside, env=own, capture_output=True, text=True, timeout=60, check=False)


def _node_names(lab: Lab) -> list[str]:
    """The nodes' names in Slurm: cgroups have them, and other tests' may be there."""
    return [f"{lab.name}-{node.name}" for node in lab.nodes]


def _configured(lab: Lab, folder: Path) -> dict[str, str]:
    """Write what the daemons read, and keep it to root; the environment that says where."""
    for name in ("munge", "state", "cgroup", *(f"spool-{node}" for node in _node_names(lab))):
        (folder / name).mkdir()
    folder.chmod(0o711)  # munged refuses a socket that others cannot reach
    key = folder / "munge" / "key"
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(secrets.token_bytes(128))
    for number in range(GPUS):
        (folder / f"gpu{number}").symlink_to("/dev/null")  # a device, which nobody opens
    host, first = socket.gethostname().partition(".")[0], lab.nodes[0].address
    shared = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "SlurmUser": "root",
    }
    controller = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{host}({first})",
        "SlurmdUser": "root",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": first,
        "AccountingStoragePass": f"{folder}/munge/socket",
        "AccountingStorageTRES": "gres/gpu",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "KillWait": "5",
    }
    database = {
        "DbdHost": host,
        "DbdAddr": first,
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "PidFile": f"{folder}/slurmdbd.pid",
        "LogFile": f"{folder}/slurmdbd.log",
    }
    names = _node_names(lab)
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr={node.address} Port={17001 + node.index} CPUs=1"
        f" RealMemory=1000 Gres=gpu:{GPUS}"
        for name, node in zip(names, lab.nodes, strict=True)
    ]
    every = ",".join(names)
    nodes.append(f"PartitionName=main Nodes={every} Default=YES MaxTime=1-0 State=UP")
    cgroup = {"CgroupPlugin": "cgroup/v1", "CgroupAutomount": "yes", "CgroupMountpoint": f"{folder}/cgroup"}
    _write(folder / "slurm.conf", shared | controller, nodes)
    _write(folder / "slurmdbd.conf", shared | database)
    _write(folder / "gres.conf", {}, [f"NodeName={every} Name=gpu File={folder}/gpu[0-{GPUS - 1}]"])
    _write(folder / "cgroup.conf", cgroup)
    return {"SLURM_CONF": f"{folder}/slurm.conf", "MYSQL_UNIX_PORT": f"{folder}/mariadb.socket"}


def _write(path: Path, settings: dict[str, str], lines: list[str] | None = None) -> None:
    text = [*(f"{name}={value}" for name, value in settings.items()), *(lines or [])]
    path.write_text("".join(f"{line}\n" for line in text))
    path.chmod(0o600)
