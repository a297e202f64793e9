"""Errors of names: which ones are suggested."""

from __future__ import annotations

import pytest

from hocket.errors import UnknownNameError

NAMES = ("resnet50_v1", "resnet101_v1", "resnet50_v2", "vgg16")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet50", "; did you mean 'resnet50_v1' or 'resnet50_v2'? choose"),
        ("vgg", "; did you mean 'vgg16'? choose"),
        ("vgg61", "; did you mean 'vgg16'? choose"),
        ("bert", "; choose"),
        ("", "; choose"),
    ],
)
def test_names_that_begin_as_a_mistaken_one_are_suggested_else_the_nearest(name: str, hint: str) -> None:
    assert f"'{name}' is unknown{hint}" in str(UnknownNameError("model", name, NAMES))
