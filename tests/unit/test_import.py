"""What importing costs: no torch, no numba, nothing that takes time."""

from __future__ import annotations

import subprocess
import sys


def test_importing_hocket_loads_neither_torch_nor_numba() -> None:
    code = (
        "import sys, hocket, hocket.cli.main; heavy = {'torch', 'numba', 'jinja2'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "from hocket import simulate, plan, Network, load_step; assert 'torch' not in sys.modules;"
        "assert callable(hocket.plan) and callable(hocket.simulate)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_everything_promised_can_be_had() -> None:
    import hocket

    for name in hocket.__all__:
        assert getattr(hocket, name) is not None
