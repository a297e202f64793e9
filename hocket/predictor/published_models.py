"""Two published predictions from a profile's totals, to stand beside ours.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020), sections 1 and 6, on
Lin et al., "A Model-Based Approach to Streamlining Distributed Training for Asynchronous SGD" (MASCOTS 2018),
and on Zheng et al., "Cynthia: Cost-Efficient Cloud Resource Provisioning for Predictable Distributed Deep
Neural Network Training" (ICPP 2019).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Totals:
    """One step of one worker as coarse models see it: seconds of each phase, the links free.

    ``server_s`` is the update's, on a processor that workers do not share.
    """

    batch_size: int
    downlink_s: float
    worker_s: float
    uplink_s: float
    server_s: float


def lin(totals: Totals, num_workers: int) -> float:
    """Examples/s of Lin et al. (MASCOTS 2018): downlink, compute and uplink in sequence, a queueing network.

    Workers are the customers of a closed network: downlink and uplink are stations that share their capacity,
    processors a delay. Throughput by exact mean value analysis.
    """
    stations_s = (totals.downlink_s, totals.uplink_s)
    queued, rate = [0.0, 0.0], 0.0
    for customers in range(1, num_workers + 1):
        response_s = [s * (1 + q) for s, q in zip(stations_s, queued, strict=True)]
        cycle_s = totals.worker_s + totals.server_s + sum(response_s)
        if cycle_s <= 0:
            return 0.0
        rate = customers / cycle_s
        queued = [rate * s for s in response_s]
    return totals.batch_size * rate


def cynthia(totals: Totals, num_workers: int) -> float:
    """Examples/s of Cynthia (ICPP 2019): W K / (T_P max(1, W U_1) + 2 T_C).

    T_P is the processing of a batch and its update, T_C the transfer of the model in one direction, and U_1
    the network's utilization with one worker, 2 T_C / (T_P + 2 T_C).
    """
    processing_s = totals.worker_s + totals.server_s
    both_ways_s = totals.downlink_s + totals.uplink_s
    if processing_s + both_ways_s <= 0:
        return 0.0
    utilization = both_ways_s / (processing_s + both_ways_s)
    step_s = processing_s * max(1.0, num_workers * utilization) + both_ways_s
    return num_workers * totals.batch_size / step_s
