"""GPUs that a cluster holds in Ray: Ray gives them to no other program, whether or not jobs run on them.

One detached actor a machine asks Ray for as many GPUs as the nodes there are to have, and jobs get the GPUs
that Ray gives it. It outlives the manager as ranks do: the next manager finds it by its name.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hocket.errors import HocketError
from hocket.text import counted

_NAMESPACE = "hocket"
_ANSWER_S = 30.0


class GpuReservation:
    """The actor that holds GPUs of a machine for as long as it lives."""

    def gpus(self) -> tuple[str, ...]:
        """The GPUs that Ray gave it, as CUDA_VISIBLE_DEVICES names them, in the order of their numbers."""
        import ray

        # Ray gives them in any order; a manager that goes on with jobs has to find theirs in the same places.
        return tuple(sorted(map(str, ray.get_gpu_ids()), key=lambda name: (len(name), name)))


def reserve_gpus(ray: Any, node: Any, cluster: str, count: int) -> tuple[str, ...]:
    """``count`` GPUs of a machine, held in Ray for ``cluster``, which may hold them already.

    ``node``: the machine as ``ray.nodes()`` has it; ``cluster``: a name that no other cluster has.

    Raises
    ------
    HocketError
        When Ray does not give that many within 30 s: other programs hold them.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    made = ray.remote(num_cpus=0, max_restarts=-1)(GpuReservation)
    name, host = reservation_name(cluster, node), node["NodeManagerHostname"]
    for _ in range(2):
        actor = made.options(
            name=name,
            namespace=_NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_gpus=count,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote()
        try:
            held: tuple[str, ...] = ray.get(actor.gpus.remote(), timeout=_ANSWER_S)
        except ray.exceptions.GetTimeoutError:
            ray.kill(actor)
            has = counted(int(node["Resources"]["GPU"]), "GPU")
            raise HocketError(
                f"{counted(count, 'GPU')} of {host}: Ray has {has} there, and other programs hold"
                f" too many of them; end those, or give a smaller --gpus-per-server"
            ) from None
        if len(held) == count:
            return held
        ray.kill(actor)  # of an earlier manager, which was given another number
    raise HocketError(f"{counted(count, 'GPU')} of {host}: Ray gave {len(held)}; start the manager again")


def release_gpus(ray: Any, node: Any, cluster: str) -> None:
    """Give a machine's GPUs back to Ray, where ``cluster`` holds any."""
    with contextlib.suppress(ValueError):  # it holds none
        ray.kill(ray.get_actor(reservation_name(cluster, node), namespace=_NAMESPACE))


def reservation_name(cluster: str, node: Any) -> str:
    """The actor's name; a machine that comes back is another node of Ray's, and has another actor."""
    return f"gpus-{cluster}-{node['NodeID']}"
