"""A fully sharded step and its plan, lowered to the kernel's nodes.

A step starts with everything at rest: its first all-gather waits for every worker's updates. Collectives of a
group share one queue; all-reduces between groups (HSDP) have one of their own where they share no link with
it. Updates are of shards, and take their part of the time that they take of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import norm_operations
from hocket.graph.csr import Indices
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.timeline import Kind
from hocket.graph.unit_places import ParameterPlaces
from hocket.network import Network, ShardGroups, number_s
from hocket.sim.loop.step_program import NO_LANE, StepProgram
from hocket.sim.lowering.beside import STARTED, STREAMS, RunsBeside
from hocket.sim.lowering.lowered import Edges, Floats, HeldChange, Lowered, TimelineNode, rows_of
from hocket.sim.lowering.unit_schedule import BEGIN, Collective, Link, UnitSchedule

_SHOWN: dict[str, tuple[str, Kind, str]] = {
    "gather": ("gather", "pull", "all-gathers"),
    "scatter": ("reduce-scatter", "push", "reduce-scatters"),
    "reduce": ("all-reduce", "reduce", "all-reduces"),
    "norm": ("norm", "reduce", "all-reduces"),
}


def beside_of(graph: StepGraph) -> RunsBeside:
    """The way in which ``graph``'s device has collectives beside computing, on CPUs by hocket.shard."""
    return STARTED if graph.device == "cpu" else STREAMS


@dataclass(frozen=True, eq=False)
class ShardedStep:
    """The part of a fully sharded step that no plan changes.

    ``durations_s`` (samples, places + updates): of operations in the program's order, updates of shards;
    ``begun_s`` (samples, places + updates + 1): the sums of those before each place.
    """

    graph: StepGraph
    network: Network
    groups: ShardGroups
    places: ParameterPlaces
    durations_s: Floats
    begun_s: Floats
    clips: bool
    beside: RunsBeside
    _known_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: StepGraph, network: Network, beside: RunsBeside | None = None) -> ShardedStep:
        """Lay out ``graph`` for the workers of ``network``; HocketError where groups do not fit.

        ``beside``: None for what the step's device has.
        """
        beside = beside or beside_of(graph)
        groups = ShardGroups.of(network, exchanged=beside.exchanges_shares)
        places = ParameterPlaces(graph)
        order = places.order
        computing = graph.durations_s[order.operations].T
        updating = graph.durations_s[order.updates].T / groups.shards
        durations_s = np.ascontiguousarray(np.concatenate((computing, updating), axis=1))
        begun_s = np.concatenate((np.zeros((len(durations_s), 1)), durations_s.cumsum(axis=1)), axis=1)
        clips = len(norm_operations(graph)) > 0
        return cls(graph, network, groups, places, durations_s, begun_s, clips, beside)

    def schedule(self, plan: Plan) -> UnitSchedule:
        """The schedule of FSDP2 under ``plan``, which fits the step."""
        order = self.places.order
        return UnitSchedule(
            plan=plan,
            places=[self.places.of(unit) for unit in plan.units],
            beside=self.beside,
            all_reduced=self.groups.replicas is not None,
        ).run(order.turn, len(order.operations))

    def seconds_of(self, each: Collective) -> float:
        """Seconds of a collective."""
        key = (each.kind, each.size_bytes)
        if key not in self._known_s:
            self._known_s[key] = self._found_s(each)
        return self._known_s[key]

    def _found_s(self, each: Collective) -> float:
        if each.kind == "norm":
            return number_s(self.network)
        scatter_s = self.groups.whole_scatter_s if self.beside.whole_scatters else self.groups.scatter_s
        of_kind = {"gather": self.groups.gather_s, "scatter": scatter_s}
        return of_kind.get(each.kind, self.groups.reduce_s)(each.size_bytes)


def lower_sharded_step(step: ShardedStep, plan: Plan, num_workers: int, *, apart: bool = True) -> Lowered:
    """Lower ``plan``, which fits the step, for ``num_workers`` simulated ones.

    ``apart``: every operation is a node of its own, as a timeline shows them; else those that nothing parts
    are one.
    """
    schedule = step.schedule(plan)
    links, collectives, after = _with_updates(step, schedule)
    nodes, last_node = _nodes(links, apart)
    u, n_timed = len(collectives), sum(last > first for first, last, _ in nodes)
    # Nodes that take time come first among the local ones: durations are aligned with them.
    timed = np.array([last > first for first, last, _ in nodes], bool)
    number = np.empty(len(nodes), np.int64)
    number[timed], number[~timed] = np.arange(n_timed), np.arange(n_timed, len(nodes))
    edges = Edges()
    edges.add(u + number[:-1], u + number[1:])
    waiting = [(node[2], k) for k, node in enumerate(nodes) if node[2] is not None]
    waited_for, waits = np.array(waiting, np.int64).reshape(-1, 2).T
    edges.add(waited_for, u + number[waits])
    lanes = np.array([_lane(step, each) for each in collectives], np.int64)
    behind = [(last_node[link], k) for k, link in enumerate(after) if link != BEGIN]
    links_behind, released = np.array(behind, np.int64).reshape(-1, 2).T
    edges.add(u + number[links_behind], released)
    following = [(each.follows, k) for k, each in enumerate(collectives) if each.follows is not None]
    edges.add(*np.array(following, np.int64).reshape(-1, 2).T)
    for lane in (0, 1):
        own = np.flatnonzero(lanes == lane)
        edges.add(own[:-1], own[1:])
    next_ptr, next_idx = rows_of(*edges.arrays(), u + len(nodes))
    lane_of = np.full(u + len(nodes), NO_LANE)
    lane_step = np.zeros(u + len(nodes), np.int64)
    lane_of[:u] = num_workers + lanes
    lane_of[u : u + n_timed], lane_step[u : u + n_timed] = 0, 1
    seconds = np.array([step.seconds_of(each) for each in collectives], np.float64)
    sums = step.begun_s
    spans = np.array([(first, last) for first, last, _ in nodes if last > first], np.int64).reshape(-1, 2)
    alone = spans[:, 1] - spans[:, 0] == 1
    durations_s = sums[:, spans[:, 1]] - sums[:, spans[:, 0]]
    durations_s[:, alone] = step.durations_s[:, spans[alone, 0]]  # not the difference of two sums
    busiest_s = max((float(seconds[lanes == lane].sum()) for lane in (0, 1)), default=0.0)
    return Lowered(
        graph=step.graph,
        network=step.network,
        program=StepProgram(u, 2, 0, 0, next_ptr, next_idx, lane_of, lane_step, np.zeros(u + len(nodes))),
        preference=np.zeros(len(nodes), np.int64),
        durations_s=np.ascontiguousarray(durations_s),
        global_durations_s=seconds[None, :],
        communication_s=busiest_s,
        occupied_s=0.0,  # other units may occupy the network for less
        occupied_apart_s=0.0,
        parse_s=0.0,
        done_node=-1,
        drawn_places=np.zeros(0, np.int64),
        drawn_group=np.zeros(0, np.int64),
        timeline_nodes=_timeline_nodes(step, plan, collectives, spans if apart else None),
        held=_held(schedule, [u + int(number[node]) for node in last_node]) if apart else (),
    )


def _held(schedule: UnitSchedule, nodes: list[int]) -> tuple[HeldChange, ...]:
    """Changes of memory, behind the last node of each link, or when a collective begins."""
    return tuple(
        HeldChange(each.collective, begins=True, size_bytes=each.size_bytes)
        if each.collective is not None
        else HeldChange(-1 if each.link == BEGIN else nodes[each.link], False, each.size_bytes)
        for each in schedule.held
    )


def _with_updates(
    step: ShardedStep, schedule: UnitSchedule
) -> tuple[list[Link], list[Collective], list[int]]:
    """The chain with the norm and updates behind it, all collectives, and the link behind which each is."""
    links, collectives = list(schedule.chain), list(schedule.collectives)
    num_places = len(step.places.order.operations)
    if step.clips:
        collectives.append(Collective(kind="norm", unit=0, size_bytes=0, behind=len(links) - 1))
        links.append(Link(num_places, num_places, len(collectives) - 1))
    links.append(Link(num_places, step.durations_s.shape[1]))
    return links, collectives, [each.behind for each in collectives]


def _nodes(links: list[Link], apart: bool) -> tuple[list[tuple[int, int, int | None]], list[int]]:
    """Operations or runs of them, and waits, in a row; and the last node of each link."""
    nodes: list[tuple[int, int, int | None]] = []
    last_node = []
    for link in links:
        if apart and link.last > link.first:
            nodes += [(place, place + 1, None) for place in range(link.first, link.last)]
        else:
            nodes.append((link.first, link.last, link.waits_for))
        last_node.append(len(nodes) - 1)
    return nodes, last_node


def _lane(step: ShardedStep, each: Collective) -> int:
    return int(each.kind == "reduce" and step.groups.apart)


def _timeline_nodes(
    step: ShardedStep, plan: Plan, collectives: list[Collective], spans: Indices | None
) -> tuple[TimelineNode, ...]:
    if spans is None:
        return ()
    graph, order, u = step.graph, step.places.order, len(collectives)
    operations = np.concatenate((order.operations, order.updates))
    shown = []
    for k, place in enumerate(spans[:, 0].tolist()):
        i = int(operations[place])
        shown.append(TimelineNode(u + k, graph.operation_names[i], PHASE_NAMES[graph.phases[i]], "compute"))
    for k, each in enumerate(collectives):
        name, drawn, lane = _SHOWN[each.kind]
        unit = "" if each.kind == "norm" else f"{batch_name(plan.units[each.unit])} ({name})"
        shown.append(TimelineNode(k, unit or name, drawn, lane))
    return tuple(shown)
