"""One rank of ``bench shard``: every variant in turn, by the clock.

A round is a block of steps of each variant, and each round begins with another one, as in ``bench train``: a
machine that slows down slows all of them alike, and figures of one round can be compared. No step runs on
into the next, so that blocks are timed by themselves. A time is that of the slowest rank.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from hocket.bench.host_noise import least_stolen, stolen_s
from hocket.bench.rank_process import run_rank
from hocket.bench.sharding.sharded_variants import PlainCopy, ShardedCopy
from hocket.bench.sharding.sharding_forecast import (
    forecasts,
    limit_of_auto,
    measured_costs,
    with_own_scatters,
)
from hocket.bench.sharding.sharding_request import (
    ASYNCHRONOUS,
    COMPUTE,
    HOCKET,
    PLAIN,
    TWO_AHEAD,
    ShardingRequest,
    TimedSharding,
)
from hocket.bench.training.timed_models import load
from hocket.bench.training.variants import Copy, gradient_bytes
from hocket.errors import HocketError
from hocket.runtime.sharding.torch_default import default_plan
from hocket.runtime.sharding.torch_sharding import noting_full_bytes
from hocket.tuner.plan_argument import AUTO

_WARM_UP = 3
_SETTLED_BY = 100
_MOST_STOLEN = 0.1


def main() -> None:
    """Serve the request in the first argument; rank 0 leaves answer.json in the folder in the second."""
    request, folder = msgspec.json.decode(sys.argv[1], type=ShardingRequest), Path(sys.argv[2])
    run_rank(partial(_serve, request, folder), folder)


def _serve(request: ShardingRequest, folder: Path) -> None:
    torch.set_num_threads(request.threads)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", timeout=timedelta(seconds=request.timeout_s))
    dist.barrier()
    answer = _ShardedRank(request).measure()
    if dist.get_rank() == 0:
        (folder / "answer.json").write_bytes(msgspec.json.encode(answer))
    dist.destroy_process_group()


class _ShardedRank:
    """This rank's part in the blocks; figures are the same on all ranks."""

    def __init__(self, request: ShardingRequest) -> None:
        self._request = request
        self._started_s = time.monotonic()

    def measure(self) -> TimedSharding:
        """Every variant in every round."""
        request = self._request
        setup = load(request.model, request.batch_size, request.seed)
        plain, own = (default_plan(setup.model, dist.get_world_size(), beside=b) for b in (False, True))
        sharded = ShardedCopy(setup, request.plan)
        self._say(f"{request.model}, batch {request.batch_size}: learning {HOCKET}'s plan")
        for _ in range(_SETTLED_BY):
            if sharded.handle.settled:
                break
            sharded.train(1)
        graph, network = sharded.handle.profile, sharded.handle.network
        known = None
        if graph is not None and network is not None:
            known = graph, with_own_scatters(network, sharded.handle.largest_unit_bytes)
        if sharded.handle.next_plan is not None:
            # Units do not change in a run: the plan comes into force as the next run would have it.
            sharded = ShardedCopy(setup, sharded.handle.next_plan)
        copies: dict[str, Copy] = {
            COMPUTE: Copy(setup),
            PLAIN: PlainCopy(setup),
            TWO_AHEAD: PlainCopy(setup, ahead=True),
            ASYNCHRONOUS: PlainCopy(setup, ahead=True, asynchronous=True),
            HOCKET: sharded,
        }
        for name, copy in copies.items():
            self._say(f"{request.model}, batch {request.batch_size}: warming up {name}")
            copy.train(_WARM_UP)
        full_bytes = {name: _full_bytes(copy) for name, copy in copies.items() if name != COMPUTE}
        blocks: dict[str, list[tuple[float, float]]] = {name: [] for name in copies}
        for turn in range(request.blocks):
            self._say(f"round {turn + 1} of {request.blocks}")
            names = list(copies)
            first = turn % len(names)
            for name in (*names[first:], *names[:first]):
                blocks[name].append(self._timed(copies[name]))
        if request.timeline and dist.get_rank() == 0:
            sharded.handle.timeline.save(request.timeline)
        return TimedSharding(
            workers=dist.get_world_size(),
            torch=str(torch.__version__),
            parameter_bytes=gradient_bytes(setup.model),
            plan=sharded.handle.plan.policy,
            units=len(sharded.handle.plan.units),
            explained=sharded.handle.explain().splitlines(),
            steps_s={name: [step_s for step_s, _ in timed] for name, timed in blocks.items()},
            stolen={name: [stolen for _, stolen in timed] for name, timed in blocks.items()},
            full_bytes=full_bytes,
            held_bytes=max(point.held_bytes for point in sharded.handle.timeline.memory),
            limit_bytes=limit_of_auto(*known, own) if known and request.plan == AUTO else None,
            forecasts=forecasts(*known, plain, sharded.handle.plan) if known else {},
            collectives=measured_costs(known[1]) if known else {},
        )

    def _timed(self, copy: Copy) -> tuple[float, float]:
        return least_stolen(lambda: self._timed_once(copy), lambda block: block[1], _MOST_STOLEN)

    def _timed_once(self, copy: Copy) -> tuple[float, float]:
        """Seconds of a step, and the share of processor time that others had, each where it is most."""
        dist.barrier()
        copy.train(1)
        stolen_before_s, begun_s = stolen_s(), time.perf_counter()
        copy.train(self._request.steps)
        block_s = time.perf_counter() - begun_s
        stolen = (stolen_s() - stolen_before_s) / block_s
        told = torch.tensor([block_s, stolen, time.monotonic() - self._started_s], dtype=torch.float64)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        slowest_s, most_stolen, passed_s = told.tolist()
        if passed_s > self._request.timeout_s:
            raise HocketError(
                f"timing took longer than {self._request.timeout_s:g} s; raise --timeout, or ask for fewer"
                " steps or blocks"
            )
        return slowest_s / self._request.steps, most_stolen

    def _say(self, text: str) -> None:
        if dist.get_rank() == 0:
            print(text, file=sys.stderr, flush=True)


def _full_bytes(copy: Copy) -> int:
    """The most bytes of full parameters at once in a step."""
    with noting_full_bytes(copy.model) as found:
        copy.train(1)
    return max(found, default=0)


if __name__ == "__main__":
    main()
