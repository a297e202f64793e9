"""Policies by name."""

from __future__ import annotations

import re

from hocket.cluster.engine.policies.ada_srsf import ADA_SRSF
from hocket.cluster.engine.policies.fair_share import FAIR_SHARE
from hocket.cluster.engine.policies.fifo import FIFO
from hocket.cluster.engine.policies.kway import K_WAY
from hocket.cluster.engine.policies.psrsf import PSRSF
from hocket.cluster.engine.policies.scheduling_policy import SchedulingPolicy
from hocket.cluster.engine.policies.srpt import SRPT
from hocket.cluster.engine.policies.srsf import srsf
from hocket.cluster.engine.policies.srsf_requeue import SRSF_REQUEUE
from hocket.cluster.engine.policies.strict_fifo import STRICT_FIFO
from hocket.cluster.engine.policies.tiresias import TIRESIAS
from hocket.errors import HocketError, UnknownNameError

_NAMED = (ADA_SRSF, K_WAY, PSRSF, SRPT, FIFO, STRICT_FIFO, TIRESIAS, FAIR_SHARE, SRSF_REQUEUE)
_POLICIES = {policy.name: policy for policy in _NAMED}
POLICY_NAMES = ("srsf-N", *_POLICIES)
_MOST = 1_000_000


def policy_of(name: str) -> SchedulingPolicy:
    """The policy of that name; ``srsf-2`` is SRSF(2).

    Raises
    ------
    UnknownNameError
        When there is none; lists those there are.
    HocketError
        When the N of ``srsf-N`` is out of range.
    """
    if name in _POLICIES:
        return _POLICIES[name]
    match = re.fullmatch(r"srsf-(0|[1-9]\d{0,8})", name)
    if match is None:
        raise UnknownNameError("policy", name, POLICY_NAMES)
    if not 1 <= int(match[1]) <= _MOST:
        raise HocketError(f"policy '{name}': N is not from 1 to {_MOST}; give e.g. srsf-1")
    return srsf(int(match[1]))
