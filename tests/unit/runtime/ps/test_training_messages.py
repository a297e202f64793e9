"""Messages keep their names on the wire, and records theirs on disk, whatever their classes are called."""

from typing import Any

import msgspec
import pytest

from hocket.runtime.ps.server import checkpoint_records
from hocket.runtime.ps.wire import training_messages

NAMES = {
    "RendezvousEntry": "Meet",
    "JoinRequest": "Begin",
    "JoinAnswer": "Started",
    "ResumeAfter": "GoOn",
    "FrameLayout": "Lay",
    "PullRequest": "Want",
    "Commit": "Commit",
    "NormsRequest": "AskNorms",
    "Norms": "Norms",
    "OptimizerStateRequest": "AskState",
    "PlanMessage": "Planned",
    "Farewell": "Bye",
    "Failed": "Failed",
}


@pytest.mark.parametrize(("name", "tag"), NAMES.items())
def test_messages_keep_their_tags(name: str, tag: str) -> None:
    message: Any = getattr(training_messages, name)
    assert message.__struct_config__.tag == tag


def test_no_message_is_left_out() -> None:
    found = training_messages.FromWorker.__args__ + training_messages.FromServer.__args__
    assert {message.__name__ for message in found} == set(NAMES)


def test_a_layout_keeps_its_keys() -> None:
    layout = training_messages.FrameLayout([], [], strict=True, drawn_anew=False, first_tag=3)
    keys = {"type", "pulls", "pushes", "strict", "drawn", "first_tag"}
    assert msgspec.json.decode(msgspec.json.encode(layout)).keys() == keys


def test_records_of_a_checkpoint_keep_their_tags() -> None:
    tags = [record.__struct_config__.tag for record in checkpoint_records.Record.__args__]
    assert tags == ["Whole", "Update", "Buffers"]
