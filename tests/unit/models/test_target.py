"""Names of what is profiled, checked before anything is built of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hocket.errors import HocketError, UnknownNameError
from hocket.models.target import check_target


def test_models_and_functions_in_files_are_taken_and_others_refused_with_the_nearest() -> None:
    check_target("resnet50_v1")
    check_target("nowhere.py:job")
    with pytest.raises(UnknownNameError, match="did you mean 'resnet50_v1'"):
        check_target("resnet50")
    with pytest.raises(HocketError, match=r"'job.py' names no function; write job.py:FACTORY"):
        check_target("job.py")


def test_no_torch_is_imported_for_a_name() -> None:
    code = (
        "import sys; from hocket.models.target import check_target; check_target('resnet18');"
        " sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
