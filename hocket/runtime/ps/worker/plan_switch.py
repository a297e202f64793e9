"""From a first order to a plan: some steps are profiled, worker 0 plans, and everybody takes its plan over.

Workers need not change at the same step: a plan says what travels together between one worker and its
servers, and servers keep one for each worker.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from statistics import median
from typing import Protocol

from hocket.graph import Plan, StepGraph
from hocket.logs import logger
from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.network.fit import fit_line
from hocket.runtime.ps.wire.layout import Frame
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.ps.worker.served_training import ServedTraining

_LEARNING_STEPS = 2
_PROFILED_STEPS = 6
_FEWEST_POINTS = 2
_KEPT_TIMES = 256  # of each size


class ServerPlanner(Protocol):
    """The interface of a planner for training with servers."""

    @property
    def drawn_anew(self) -> bool:
        """True if pulls go in an order that is drawn for each step."""

    def first_plan(self, graph: StepGraph) -> Plan:
        """A plan for a step of which only the parameters are known."""

    def measured_plan(self, graph: StepGraph, network: Network) -> Plan | None:
        """The plan for the step as profiled; None: the first one stays."""


class PullTimes:
    """Times of the last pulls that came right behind another one: the network's time, nobody's waiting."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT_TIMES))
        self._last: dict[int, tuple[int, float]] = {}

    def add(self, step: int, server: int, frame: Frame, ended_s: float) -> None:
        """A pull of ``step`` ended."""
        before = self._last.get(server)
        if before is not None and before[0] == step:
            self._seconds[frame.buffer.numel()].append(ended_s - before[1])
        self._last[server] = step, ended_s

    def network(self, workers: int, servers: int) -> Network | None:
        """The network as one pair had it while all of them pulled; None without two sizes."""
        points = [
            # Pairs' threads go on adding.
            MeasuredPoint(size_bytes=size, seconds=max(median(list(seconds)), 1e-9))
            for size, seconds in list(self._seconds.items())
        ]
        if len(points) < _FEWEST_POINTS:
            return None
        fit = fit_line(points, power=0.5)
        share = max(workers, servers)
        return Network(
            bandwidth_bps=min(max(8 * share / max(fit.b_s_per_byte, 1e-15), 1.0), 1e18),
            startup_s=fit.a_s,
            num_workers=workers,
            num_servers=servers,
        )


class PlanSwitch:
    """Called between steps; ``plan``: the one in force, ``settled``: whether it stays."""

    def __init__(
        self,
        training: ServedTraining,
        client: Client,
        planner: ServerPlanner,
        plan: Plan,
        network: Callable[[], Network | None],
        *,
        plan_given: bool,
    ) -> None:
        self.plan = plan
        self.graph: StepGraph | None = None
        self.network: Network | None = None
        self._plan_given = plan_given
        self._training, self._client, self._planner, self._measure_network = (
            training,
            client,
            planner,
            network,
        )
        self._plan_published = plan_given
        self._logged_phase = ""

    @property
    def settled(self) -> bool:
        """True if the plan in force stays."""
        return self._plan_given or (self._plan_published and self._client.published_plan in (None, self.plan))

    @property
    def phase(self) -> str:
        """The purpose of the present steps: learning, profiling, or nothing but training."""
        if self.settled:
            return "settled"
        return "learning" if self._training.steps < _LEARNING_STEPS else "profiling"

    def __call__(self) -> None:
        """A step is over and the next one is not asked for yet."""
        self._take_turn()
        if self._client.worker == 0 and self.phase != self._logged_phase:
            self._logged_phase = self.phase
            logger.info(f"{self.phase}: plan '{self.plan.policy}' is in force, step {self._training.steps}")

    def _take_turn(self) -> None:
        steps, recorder = self._training.steps, self._training.recorder
        if not self._plan_given and steps == _LEARNING_STEPS:
            recorder.forget()
        elif not self._plan_published and steps > _LEARNING_STEPS + _PROFILED_STEPS:
            self._plan_published = True
            self.graph = recorder.graph(type(self._training.model).__name__, 1)
            self.network = self._measure_network()
            if self._client.worker == 0 and self.graph is not None and self.network is not None:
                later = self._planner.measured_plan(self.graph, self.network)
                if later is not None:
                    self._client.publish(later)
        planned = self._client.published_plan
        if planned is not None and planned is not self.plan and not self._plan_given:
            self.plan = planned
            self._client.use_plan(planned)
            self._client.order.forget()
            recorder.forget()
