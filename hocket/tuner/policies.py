"""Any policy by name, those that judge their plans by simulation included."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, ResultRow, StepGraph, check_exchanges
from hocket.graph.clipped_step import clipped_for
from hocket.network import Network, assign_servers, check_exchange
from hocket.planner import POLICIES, Architecture, Barrier, policies_of
from hocket.planner import plan as plan_by_policy
from hocket.planner.named_planners import BEST_BUCKETS, UNDER_MEMORY

Status = Literal["", "optimal", "feasible"]
_SEARCHES = ("exact", "search")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The exchange of gradients, as far as it is asked for.

    Attributes
    ----------
    architecture : None: the policy's own; for ``exact`` and ``search`` as :func:`usual_architecture` has it.
    barrier : in place of the policy's own, of parameter servers; None: that one, and ``search`` chooses.
    fusion_bytes : bytes of Horovod's buffer; 0: none.
    clip : the step clips by norm, and planners may cut reductions in halves.
    memory_bytes : of a worker's device, which fully sharded plans are to keep to; None: no limit.
    """

    architecture: Architecture | None = None
    barrier: Barrier | None = None
    fusion_bytes: int = 0
    clip: bool = False
    memory_bytes: float | None = None


OWN_EXCHANGE = Exchange()


@dataclass(frozen=True, kw_only=True)
class PlannedPolicy:
    """A plan and what its planner knows of it.

    ``drawn_anew``: whether a simulation draws its order anew each step; ``status`` and ``bound_s``: of a
    planner that proves something, else "" and 0; ``evaluations``: how many plans were simulated for it.
    """

    plan: Plan
    drawn_anew: bool = False
    status: Status = ""
    bound_s: float = 0.0
    evaluations: int = 0

    def with_bounds(self, row: ResultRow) -> ResultRow:
        """``row`` of this plan's simulation with what is known beyond it."""
        bound_s = min(max(row.bound_s, self.bound_s), row.iteration_s)
        return msgspec.structs.replace(row, status=self.status, bound_s=bound_s)


def policy_names(architecture: Architecture | None = None) -> list[str]:
    """The names of the policies that :func:`hocket.plan` takes.

    Parameters
    ----------
    architecture
        "ps", "allreduce" or "fsdp": those for it alone; None: all.

    Returns
    -------
    The names, those that search and so serve every architecture last.

    Raises
    ------
    UnknownNameError
        For another architecture.

    Examples
    --------
    >>> import hocket
    >>> hocket.policy_names("allreduce")
    ['wfbp', 'ddp', 'horovod', 'caramel', 'bytescheduler', 'ddp-best', 'exact', 'search']
    """
    if architecture is not None and architecture not in get_args(Architecture):
        raise UnknownNameError("architecture", architecture, list(get_args(Architecture)))
    names = list(POLICIES) if architecture is None else policies_of(architecture)
    simulated = [BEST_BUCKETS] if architecture in (None, "allreduce") else []
    simulated += UNDER_MEMORY if architecture in (None, "fsdp") else []
    return [*names, *simulated, *_SEARCHES]


def plan(
    graph: StepGraph,
    network: Network,
    policy: str,
    *,
    architecture: Architecture | None = None,
    barrier: Barrier | None = None,
    seed: int = 0,
    fusion_bytes: int = 0,
    budget_s: float = 10.0,
    clip: bool = False,
    memory_bytes: float | None = None,
) -> Plan:
    """Plan one step of ``graph`` on ``network`` by a policy.

    Parameters
    ----------
    graph
        One worker's step.
    network
        Links and costs, and the numbers of workers and servers.
    policy
        The policy's name. For parameter servers: fifo, random, reverse, default, layerwise, poseidon, tic,
        tac, ibatch-greedy, ibatch, p3. For AllReduce: wfbp, ddp, horovod, caramel, bytescheduler, ddp-best.
        Fully sharded: fsdp, fsdp-zero2, fsdp-tic, fsdp-tac, fsdp-ibatch, simplefsdp. For each: search, and
        exact, which takes steps of up to 200 operations and 40 parameters and needs OR-tools (the extra
        optimal); fully sharded it takes steps of few blocks and needs nothing. What it proves holds for the
        mean of a profile's steps.
    architecture
        "ps", "allreduce" or "fsdp"; None: the policy's own, for ``exact`` and ``search`` AllReduce unless
        the network or ``barrier`` is one of servers.
    barrier
        "step" or "parameter" in place of the policy's own, of parameter servers; ``search`` chooses the
        better where it is None.
    seed
        Decides every random draw, of policy "random" and of searches.
    fusion_bytes
        Horovod's buffer, in bytes, refused for other policies; 0: none.
    budget_s
        Seconds that ``exact`` and ``search`` may take, above 0.
    clip
        The step clips its gradients by their norm, whether or not it was measured so: caramel, bytescheduler
        and search may cut reductions in halves.
    memory_bytes
        The memory of a worker's device, which fully sharded plans that search keep to; None: no limit.

    Returns
    -------
    The plan; :func:`hocket.save_plan` writes it.

    Raises
    ------
    UnknownNameError
        When no policy has that name; lists those there are.
    HocketError
        When the request cannot be served: an option that does not apply, more servers than parameters, a step
        too large for ``exact``, or OR-tools missing.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> plan = hocket.plan(graph, hocket.Network(bandwidth_bps=1e9, num_workers=4), "caramel")
    >>> plan.policy, plan.architecture
    ('caramel', 'allreduce')
    """
    exchange = Exchange(
        architecture=architecture,
        barrier=barrier,
        fusion_bytes=fusion_bytes,
        clip=clip,
        memory_bytes=memory_bytes,
    )
    return make_plan(graph, network, policy, exchange, seed=seed, budget_s=budget_s).plan


def make_plan(
    graph: StepGraph,
    network: Network,
    policy: str,
    exchange: Exchange = OWN_EXCHANGE,
    *,
    seed: int = 0,
    budget_s: float = 10.0,
    progress: Callable[[str, float, float], None] | None = None,
) -> PlannedPolicy:
    """Plan one step of ``graph`` on ``network`` by ``policy``.

    ``seed`` decides every random draw; ``budget_s`` is for how long ``exact`` and ``search`` may go on.
    ``progress`` is called with what is being done, and how much of how much.

    Raises
    ------
    UnknownNameError
        When no policy has that name; lists those there are.
    HocketError
        When the request cannot be served: an option that does not apply, too many servers, a step too large.
    """
    if policy not in policy_names():
        raise UnknownNameError("policy", policy, policy_names())
    if not 0 < budget_s <= 1e9:
        raise HocketError(f"a budget of {budget_s} s is not between 0 and 1e9; give e.g. 10s")
    asked, barrier, fusion_bytes = exchange.architecture, exchange.barrier, exchange.fusion_bytes
    if policy in _SEARCHES:
        asked = asked or usual_architecture(network, barrier)
    architecture = architecture_of(policy, asked)
    check_request(graph, network, architecture, barrier, fusion_bytes)
    if exchange.clip:
        graph = clipped_for(graph, architecture)
    if fusion_bytes and policy not in POLICIES:
        raise HocketError(f"fusion {fusion_bytes} B: {policy} finds its own batches; leave it out")
    if architecture == "fsdp" and policy not in POLICIES:
        return _sharded_plan(graph, network, policy, exchange, seed=seed, budget_s=budget_s)
    if policy == BEST_BUCKETS:
        from hocket.tuner.best_buckets import best_buckets

        return PlannedPolicy(plan=for_workers(best_buckets(graph, network, seed=seed), network))
    if policy == "exact":
        assert architecture != "fsdp", "planned above"
        if barrier == "parameter":
            raise HocketError(
                "barrier 'parameter': the exact planner knows one barrier per step; leave it out"
            )
        from hocket.planner.exact import exact
        from hocket.sim import simulate

        # The models know one duration of each operation, and so does the simulation that judges for them.
        mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
        optimum = exact(
            mean,
            network,
            architecture=architecture,
            evaluate=lambda made: simulate(mean, made, network, iterations=4).row.iteration_s,
            time_limit_s=budget_s,
            seed=seed,
            halves=exchange.clip,
        )
        # A bound proven for mean durations is none for a few steps drawn from several.
        proven_s = optimum.bound_s if graph.num_samples == 1 else 0.0
        return PlannedPolicy(plan=for_workers(optimum.plan, network), status=optimum.status, bound_s=proven_s)
    if policy == "search":
        from hocket.tuner.improve import SearchChoices, improve

        names = policies_of(architecture)
        plans = [
            plan_by_policy(graph, network, name, seed=seed, barrier=barrier, halves=exchange.clip)
            for name in names
        ]
        better = improve(
            graph,
            network,
            plans,
            choices=SearchChoices(barrier=barrier, halves=exchange.clip),
            seed=seed,
            budget_s=budget_s,
            progress=progress,
        )
        return PlannedPolicy(plan=for_workers(better.plan, network), evaluations=better.evaluations)
    made = plan_by_policy(
        graph, network, policy, seed=seed, fusion_bytes=fusion_bytes, barrier=barrier, halves=exchange.clip
    )
    return PlannedPolicy(plan=for_workers(made, network), drawn_anew=POLICIES[policy].drawn_anew)


def _sharded_plan(
    graph: StepGraph, network: Network, policy: str, exchange: Exchange, *, seed: int, budget_s: float
) -> PlannedPolicy:
    """A fully sharded plan by a planner that judges by simulation."""
    from hocket.planner.sharded.block_chain import is_chain
    from hocket.tuner.sharded_plans import ShardedPlanners

    limit = float("inf") if exchange.memory_bytes is None else exchange.memory_bytes
    planners = ShardedPlanners(graph, network, limit)
    if policy in UNDER_MEMORY:
        made = getattr(planners, policy.replace("fsdp-", ""))()
        return PlannedPolicy(plan=for_workers(made.plan, network), evaluations=made.evaluations)
    plans = [plan_by_policy(graph, network, name) for name in policies_of("fsdp")]
    if is_chain(graph):
        plans.append(planners.ibatch().plan)
    if policy == "exact":
        made = planners.exact(plans, seed=seed, budget_s=budget_s)
    else:
        made = planners.search(plans, seed=seed, budget_s=budget_s)
    plan = for_workers(made.plan, network)
    return PlannedPolicy(plan=plan, status=made.status, evaluations=made.evaluations)


def for_workers(plan: Plan, network: Network) -> Plan:
    """``plan`` with the number of workers that it was planned for."""
    return msgspec.structs.replace(plan, workers=network.num_workers)


def own_architecture(policy: str | None) -> Architecture | None:
    """The one architecture that ``policy`` plans for; None where it plans for either, or is unknown."""
    if policy == BEST_BUCKETS:
        return "allreduce"
    if policy in UNDER_MEMORY:
        return "fsdp"
    return POLICIES[policy].architecture if policy in POLICIES else None


def usual_architecture(network: Network, barrier: Barrier | None = None) -> Architecture:
    """AllReduce, where nothing else decides, or servers for several of them, a window or a barrier."""
    of_servers = barrier is not None or network.num_servers > 1 or network.window_bits > 0
    return "ps" if of_servers else "allreduce"


def architecture_of(policy: str, architecture: Architecture | None) -> Architecture:
    """The architecture that ``policy`` plans for.

    Raises
    ------
    HocketError
        When another one was asked for.
    """
    own = own_architecture(policy) or architecture or "ps"
    if architecture is not None and architecture != own:
        names = ", ".join(policy_names(architecture))
        raise HocketError(
            f"policy '{policy}' is not for architecture '{architecture}'; choose one of: {names}"
        )
    return own


def check_request(
    graph: StepGraph,
    network: Network,
    architecture: Architecture,
    barrier: Barrier | None = None,
    fusion_bytes: int = 0,
) -> None:
    """Refuse what the architecture cannot do on ``network``, and options that it does not have.

    Raises
    ------
    HocketError
        When the step sends nothing, there are more servers than parameters, or an option of the other
        architecture is given.
    """
    check_exchanges(graph, architecture)
    check_exchange(network, architecture)
    if architecture != "ps":
        if barrier is not None:
            others = "all-reduce has" if architecture == "allreduce" else "fully sharded steps have"
            raise HocketError(f"barrier '{barrier}' is for parameter servers; {others} none to choose")
        if architecture == "fsdp" and fusion_bytes:
            raise HocketError(f"fusion {fusion_bytes} B is Horovod's, for all-reduce; leave it out")
        return
    assign_servers(graph.parameter_bytes.tolist(), network.num_servers)
    if fusion_bytes:
        raise HocketError(f"fusion {fusion_bytes} B is Horovod's, for all-reduce; leave it out")


def can_be_exact(
    graph: StepGraph,
    network: Network,
    architecture: Architecture,
    barrier: Barrier | None,
    halves: bool = False,
) -> bool:
    """True if the exact planner is installed and its models cover the request."""
    if barrier == "parameter":
        return False
    if architecture == "fsdp":
        from hocket.planner.sharded.pieces import Pieces
        from hocket.planner.sharded.unit_search import is_enumerable

        return is_enumerable(len(Pieces.of(graph).blocks))
    try:
        from hocket.planner.exact import check_exact

        check_exact(graph, network, architecture, halves)
    except HocketError:
        return False
    return True
