"""The groups of ranks on which a channel talks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.transfer_group import TransferGroup


@dataclass(frozen=True)
class ChannelGroups:
    """Groups that a channel alone talks on: transfers, urgent ones, and what rank 0 hears and says.

    ``urgent``: None where urgent transfers have no group of their own, and are chosen next instead.
    ``make_norms`` makes one for norms, on all ranks at once, when the first plan comes that needs it; None:
    such plans are not for this channel.
    """

    transfers: TransferGroup
    urgent: TransferGroup | None
    choices: GlooGroup
    make_norms: Callable[[], GlooGroup] | None = field(default=None, kw_only=True)
