"""The GPUs that users have had for how long, by the records of their jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hocket.cluster.live.job_record import Record


def attained_gpu_s(
    records: Iterable[Record], now_s: float, half_life_s: float | None = None
) -> dict[str, float]:
    """GPU seconds of each user's jobs until now, as the engine counts them, from placement to end.

    Of a job with more attempts than a record keeps, the newest count. half_life_s: of what was had so long
    ago half counts; None: all of it.
    """
    found: dict[str, float] = {}
    for record in records:
        spans = [(tried.start_s, tried.end_s, len(tried.gpus)) for tried in record.tried]
        is_last_told = bool(spans) and spans[-1][0] == record.placed_s
        if record.placed_s is not None and not is_last_told:
            end_s = now_s if record.finish_s is None else record.finish_s
            spans.append((record.placed_s, end_s, record.num_gpus))
        seconds = sum(
            _counted_s(now_s - max(start_s, end_s), now_s - start_s, half_life_s) * gpus
            for start_s, end_s, gpus in spans
        )
        found[record.job.user] = found.get(record.job.user, 0.0) + seconds
    return found


def _counted_s(since_end_s: float, since_start_s: float, half_life_s: float | None) -> float:
    """The seconds between two times ago, as far as they count."""
    if half_life_s is None:
        return since_start_s - since_end_s
    rate = math.log(2.0) / half_life_s
    return math.exp(-rate * since_end_s) * -math.expm1(-rate * (since_start_s - since_end_s)) / rate
