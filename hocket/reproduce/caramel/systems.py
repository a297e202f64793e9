"""The networks and systems that Caramel's figures compare.

The network's cost is the contention paper's fit to AllReduces of two nodes on 10 Gbit/s Ethernet, a + b d
with a = 6.69e-4 s and b = 8.53e-10 s/B; nothing is tuned. A ring of two has a = 2 alpha and b = beta + gamma
/ 2, beta the 8e-10 s/B of the wire. The fit does not say how much of alpha waits and how much occupies the
receiver, so both extremes are there.
"""

from __future__ import annotations

import msgspec

from hocket.graph import Plan, ResultRow, StepGraph
from hocket.network import Network, PatternChoice
from hocket.planner import POLICIES, plan
from hocket.planner.caramel.caramel import caramel
from hocket.sim import simulate

MODELS = ("alexnet_v2", "inception_v3", "resnet50_v1", "resnet152_v2", "vgg16")
ALPHA_S = 6.69e-4 / 2
REDUCE_S_PER_BYTE = 2 * (8.53e-10 - 8e-10)
# Seconds of alpha that wait, and that occupy the receiver. With 5 : 2 a message in 8 chunks takes 3 times as
# long as in one, which is what Fig. 13 shows: used for Figs. 13 and 14 alone.
SPLITS = {
    "alpha waits": (ALPHA_S, 0.0),
    "alpha occupies": (0.0, ALPHA_S),
    "50 us wait": (50e-6, 0.0),
    "5 : 2": (ALPHA_S * 5 / 7, ALPHA_S * 2 / 7),
}
FUSION_BYTES = 64 * 2**20
STAGES = {"depth and pattern": "depth", "batching": "batching", "order": "order", "windows": "windows"}


def reducing(pattern: PatternChoice, split: str, workers: int) -> Network:
    """A network of ``workers`` with that split of alpha; Caramel takes the cheapest pattern for each size."""
    startup_s, parse_s = SPLITS[split]
    return Network(
        bandwidth_bps=10e9,
        startup_s=startup_s,
        num_workers=workers,
        parse_s_per_byte=REDUCE_S_PER_BYTE,
        parse_s=parse_s,
        pattern=pattern,
    )


def run(graph: StepGraph, made: Plan, network: Network, *, steps: int, seed: int) -> ResultRow:
    """Simulate ``made``; what frameworks leave to chance is drawn anew for every worker and step."""
    drawn = POLICIES[made.policy].drawn_anew
    return simulate(graph, made, network, iterations=steps, seed=seed, random_order=drawn).row


def fusion(graph: StepGraph) -> int:
    """Horovod's default, or what the planner asks for: room for the largest gradient."""
    return max(FUSION_BYTES, int(graph.parameter_bytes.max()))


def stages(graph: StepGraph, network: Network) -> dict[str, Plan]:
    """Caramel's plans, each stage on top of those before it (Figs. 11, 12)."""
    on = dict.fromkeys(STAGES.values(), False)
    made = {}
    for label, stage in STAGES.items():
        on[stage] = True
        made[label] = caramel(graph, network, **on)
    return made


def systems(graph: StepGraph, workers: int, seed: int) -> dict[str, tuple[Plan, Network]]:
    """A plan and its network for each system of Figs. 8 to 10, frameworks without Caramel included."""
    mpi = reducing("ring", "alpha waits", workers)
    waits, occupies = (reducing("cheapest", split, workers) for split in ("alpha waits", "alpha occupies"))
    found = {
        "Horovod": (plan(graph, mpi, "wfbp"), mpi),
        "Horovod, fused": (plan(graph, mpi, "horovod", fusion_bytes=fusion(graph)), mpi),
        "DDP": (plan(graph, mpi, "ddp"), mpi),
        "Caramel": (caramel(graph, waits), waits),
        "Caramel, ring": (caramel(graph, mpi), mpi),
        "Caramel, alpha occupies": (caramel(graph, occupies), occupies),
    }
    for servers in (workers, workers // 2):
        network = Network(startup_s=ALPHA_S, num_workers=workers, num_servers=servers)
        share = "W" if servers == workers else "W/2"
        for policy in ("random", "tac"):
            name = f"PS, {share}" if policy == "random" else f"PS, {share}, TAC"
            found[name] = (plan(graph, network, policy, seed=seed), network)
    return found


def sent_as_ready(made: Plan) -> Plan:
    """The plan with its reductions sent as they become ready, the first listed first."""
    return msgspec.structs.replace(made, issue="ready")
