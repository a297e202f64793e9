"""Max-min fair rates by progressive filling: what transfers get that share links.

All rates grow together until a link is full; its transfers keep what they have, the others grow on. The
outcome is the one allocation in which no transfer can get more except from one that has no more than itself
(Bertsekas and Gallager, Data Networks, section 6.5.2).

On two servers it is the rule of Li et al. (ICPE 2020), section 5, wherever that rule speaks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.kernel import kernel, look_for_stop

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LOOK_EVERY = 1 << 20  # steps of a loop
# Links that fill up this close (relative to the rate) fill up together.
_TOGETHER = 1.0 + 1e-12


@kernel
def fill(route, capacity_bps, flows, rate_bps, left_bps, load):
    """Give each of ``flows`` its rate; other entries of ``rate_bps`` stay.

    route (F, hops): the links of each flow, padded with -1, at least one; capacity_bps (L,); flows (n,):
    which of the F send; rate_bps (F,): modified in place; left_bps, load (L,): room to work in.
    """
    hops = route.shape[1]
    for link in range(len(load)):
        left_bps[link], load[link] = capacity_bps[link], 0
    for f in flows:
        rate_bps[f] = -1.0
        for h in range(hops):
            if route[f, h] >= 0:
                load[route[f, h]] += 1
    unfixed, unseen = len(flows), 0
    while unfixed > 0:
        unseen += len(flows) + len(load)
        if unseen > _LOOK_EVERY:
            unseen = 0
            look_for_stop()
        share = np.inf
        for link in range(len(load)):
            if load[link] > 0:
                share = min(share, left_bps[link] / load[link])
        full = share * _TOGETHER
        # A flow over a full link keeps this share. Taking it off its links leaves full ones full, and no
        # other link falls below the share, so links can be judged while flows are taken off.
        for f in flows:
            if rate_bps[f] >= 0.0:
                continue
            stops = False
            for h in range(hops):
                link = route[f, h]
                if link >= 0 and left_bps[link] <= full * load[link]:
                    stops = True
            if not stops:
                continue
            rate_bps[f] = share
            unfixed -= 1
            for h in range(hops):
                if route[f, h] >= 0:
                    left_bps[route[f, h]] = max(0.0, left_bps[route[f, h]] - share)
                    load[route[f, h]] -= 1


def max_min_bps(route: Ints, capacity_bps: Floats) -> Floats:
    """Bits per second of each of F flows that all send; route (F, hops), capacity_bps (L,), in bit/s.

    ``route`` lists the links of each flow, at least one, padded with -1.
    """
    rate_bps = np.zeros(len(route))
    links = len(capacity_bps)
    fill(route, capacity_bps, np.arange(len(route)), rate_bps, np.empty(links), np.empty(links, np.int64))
    return rate_bps
