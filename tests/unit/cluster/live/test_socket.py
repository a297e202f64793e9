"""Where the gate's socket is, when the cluster's folder has a long path."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hocket.cluster.live.manager import _socket_path
from hocket.errors import HocketError


def test_a_socket_is_in_the_folder_or_in_one_that_is_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert _socket_path(Path("/c")) == Path("/c/gate")
    folder = tmp_path / ("x" * 100)
    path = _socket_path(folder)
    assert path.parent.parent == tmp_path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert _socket_path(folder) == path  # also after a restart
    path.parent.chmod(0o770)
    with pytest.raises(HocketError, match="no folder of yours alone"):
        _socket_path(folder)
    path.parent.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HocketError, match="no folder of yours alone"):
        _socket_path(folder)
