"""``hocket profile SCRIPT.py``: a training script is run, measured, and ended."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from hocket.cli.printing import note, print_end, warn
from hocket.cli.profile_pace import StepPace
from hocket.cli.stoppable import Stoppable

_PATIENCE_S, _GLANCE_S, _LINE_S = 5.0, 0.05, 10.0


def measure_script(
    script: Path, arguments: list[str], output: Path, steps: int, batch_size: int | None
) -> None:
    """Run ``script`` until its steps are measured, and write them, unless this is a rank other than 0."""
    from hocket.document import is_standard_output
    from hocket.graph import save_step
    from hocket.profiler import described, profile_script
    from hocket.profiler.machine_use import BusyNotice

    place = output if is_standard_output(output) else output.absolute()  # the script may leave the folder
    rank = os.environ.get("RANK", "0")
    lines, notice = StepLines(script), BusyNotice(lambda line: note(f"{script}: {line}"))
    pace = StepPace(str(script), steps)

    def report(done: int, total: int) -> None:
        notice.look()
        pace.report(done, total)
        lines.report(done, total)

    with pace.told_when_stopped() if rank == "0" else nullcontext(), Stoppable():
        measured = profile_script(
            script,
            arguments,
            steps=steps,
            batch_size=batch_size,
            tell=lambda line: note(f"{script}: {line}"),
            progress=report if rank == "0" else None,
        )
    if rank == "0":
        notice.end(measured.profile.use)
        save_step(measured.profile.graph, place)
        note(f"{script} was ended after its steps were measured\n{output}: {described(measured)}")
        if measured.profile.graph.caveat:
            warn(f"{output}: {measured.profile.graph.caveat}")
        print_end()
    _leave_behind()


class StepLines:
    """Lines on the steps that were seen, every ten seconds, printed between steps.

    A script may start processes and print by itself: no thread and no bar is beside it.
    """

    def __init__(self, script: Path) -> None:
        self._script = script
        self._began_s = self._told_s = time.monotonic()

    def report(self, done: int, total: int) -> None:
        """Tell how many steps were seen of those that are needed, if it is time."""
        now_s = time.monotonic()
        if now_s - self._told_s < _LINE_S:
            return
        self._told_s = now_s
        note(f"{self._script}: {done} of {total} steps measured after {now_s - self._began_s:.0f} s")


def _leave_behind() -> None:
    """End this process, if what a script has begun would keep it: nobody is there to end that any more."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        others = [each for each in threading.enumerate() if each is not threading.main_thread()]
        children = multiprocessing.active_children()
        if not children and all(thread.daemon for thread in others):
            return
        time.sleep(_GLANCE_S)
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
