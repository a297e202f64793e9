"""A script that Hocket runs sees what it sees under python itself, and every exit of it is heard of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hocket.launch.processes import SCRIPT

_LOOKS_AROUND = '''"""What it is about."""
import inspect, os, pickle, sys
import beside

class Own:
    def method(self):
        return 1

if __name__ == "__main__":
    own = pickle.loads(pickle.dumps(Own()))
    main = sys.modules["__main__"]
    print(sys.argv, sys.path, __file__, main.__file__, __spec__, __package__, __doc__, own.method())
    print(__builtins__, main is inspect.getmodule(Own), inspect.getsource(Own), beside.NAME, os.getcwd())
'''

# What sys.exit was given, whoever is at its place, as when a worker trains; then how python ends.
_LISTENS = """
import builtins, sys
from sys import exit as imported
before = sys.exit
def noticed(status=None, /):
    print("asked for", status)
    before(status)
sys.exit = noticed
"""


def ended(path: Path, *command: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        [sys.executable, *command, path.name, "--plan", "its own"],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_a_script_sees_what_it_sees_under_python(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'beside'\n")
    (folder / "real.py").write_text(_LOOKS_AROUND)
    script = tmp_path / "script.py"
    script.symlink_to(folder / "real.py")
    assert ended(script, *SCRIPT) == ended(script)
    assert ended(script, *SCRIPT)[0] == 0


@pytest.mark.parametrize(
    ("ends", "status", "asked"),
    [
        ("raise SystemExit(3)", 3, "3"),
        ("raise SystemExit", 0, "None"),
        ("exit(4)", 4, "4"),
        ("imported(5)", 5, "5"),
        ("sys.exit(0)", 0, "0"),
        ("sys.exit('it went wrong')", 1, "it went wrong"),
        ("try: sys.exit(6)\nexcept SystemExit: pass", 0, "None"),
    ],
)
def test_every_exit_is_heard_of(tmp_path: Path, ends: str, status: int, asked: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(_LISTENS + ends)
    found, out, err = ended(script, *SCRIPT)
    assert (found, out.splitlines()[-1]) == (status, f"asked for {asked}")
    assert err.strip() == (asked if status == 1 else "")


def test_an_error_ends_as_under_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('it went wrong')")
    found, _, err = ended(script, *SCRIPT)
    assert found == 1
    assert err.splitlines()[-1] == "ValueError: it went wrong"
    assert str(script) in err
