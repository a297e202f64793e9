"""``hocket train --architecture ps``: servers, workers, and one line for what does not fit together."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hocket.errors import HocketError
from hocket.launch import Rule, ServedJob
from hocket.launch.credentials import Credentials, credentials_of, new_credentials
from hocket.launch.environment import whole_number
from hocket.launch.job import NEW_TOKEN
from hocket.launch.processes import SCRIPT, SERVER, run_job, server_environment, worker_environment

Barrier = Literal["step", "parameter"]

_HOST = "127.0.0.1"
_TOKEN = "HOCKET_TOKEN"


def train_with_servers(
    script: Sequence[str],
    told: Mapping[str, str],
    *,
    servers: int,
    rule: Rule,
    restarts: int,
    **options: Any,
) -> int:
    """Train ``script`` with servers on this machine, or be one process of a job that was started elsewhere.

    ``told``: variables for the script; ``options``: of the :class:`ServedJob`. Where RANK and WORLD_SIZE are
    in the environment (torchrun, ``hocket lab exec --all``), the first ranks are servers and the others
    workers.
    """
    command = [str(Path(script[0])), *script[1:]]
    if "RANK" in os.environ:
        _become(command, told, servers=servers, rule=rule, **options)
    with socket.create_server((_HOST, 0)) as listener:
        address = "{}:{}".format(*listener.getsockname()[:2])
        job = ServedJob(address=address, token=new_credentials().text, rule=rule, servers=servers, **options)
        return run_job(job, listener, command, told, restarts)


def _become(command: list[str], told: Mapping[str, str], *, servers: int, rule: Rule, **options: Any) -> None:
    """Go on as the server or the worker that RANK asks for."""
    rank, world = whole_number("RANK", 0), whole_number("WORLD_SIZE", 0)
    if world != servers + rule.workers:
        raise HocketError(
            f"WORLD_SIZE is {world}, but {servers} servers and {rule.workers} workers make"
            f" {servers + rule.workers}; start as many ranks, the first ones are servers"
        )
    credentials = _credentials()
    host, port = os.environ.get("MASTER_ADDR", _HOST), whole_number("MASTER_PORT", 29500)
    job = ServedJob(address=f"{host}:{port}", token=credentials.text, rule=rule, servers=servers, **options)
    store = f"{host}:{port + 1}"
    if rank < servers:
        _ = credentials.served
        run, environment = [sys.executable, "-P", *SERVER, str(rank)], server_environment(job, store)
    else:
        run = [sys.executable, *SCRIPT, *command]
        environment = {**told, **worker_environment(job, store, rank - servers)}
    sys.stdout.flush()
    sys.stderr.flush()
    # The job says it; workers' scripts find no private key.
    inherited = {name: value for name, value in os.environ.items() if name != _TOKEN}
    os.execve(run[0], run, {**inherited, **environment})


def _credentials() -> Credentials:
    """The credentials that ranks that are started elsewhere are given."""
    fix = f'give all ranks one that we draw: export {_TOKEN}="$({NEW_TOKEN})"'
    token = os.environ.get(_TOKEN)
    if token is None:
        raise HocketError(f"there is no {_TOKEN}; {fix}")
    return credentials_of(token, _TOKEN, fix)
