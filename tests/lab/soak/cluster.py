"""The cluster of a soak: a lab, a manager that is started again when it was killed, and its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from hocket.cluster.live.manager_address import ask_manager, contact_of
from hocket.cluster.live.manager_messages import FromClient, ManagerAnswer
from hocket.errors import HocketError
from hocket.lab import Lab
from hocket.process_stats import all_pids, first_environment

GPUS_PER_NODE = 4
TYPES = ("a100", "v100")
"""The types of GPUs; the first half of the nodes has the first one."""
LOST_AFTER_S = 4.0
RESTARTS = 3
_LIMIT_S = 120.0
_PLACE = "HOCKET_RANK_PLACE"  # what a rank's processes inherit
_LATER_S = 0.3


class Soaked:
    """A lab's nodes under a manager whose state is in ``folder``; ``gpus``: the ids that their GPUs get.

    ``said``: the file with all that its managers have said; ``starts``: how many of them there were.
    """

    def __init__(self, folder: Path, lab: Lab, gpus: list[str]) -> None:
        self.lab, self.gpus, self.state = lab, gpus, folder / "state"
        self.said = folder / "said.txt"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()

    # The manager.

    def start(self) -> None:
        """Start a manager, and again as long as a node is away: a lab is to be whole then."""
        deadline_s = time.monotonic() + _LIMIT_S
        while not self._started():
            assert time.monotonic() < deadline_s, self.said.read_text()[-3000:]
            time.sleep(_LATER_S)

    def _started(self) -> bool:
        command = [sys.executable, "-m", "hocket", "cluster", "serve", "--state", str(self.state)]
        command += ["--page", "off", "--lab", self.lab.name, "--gpus-per-server", str(GPUS_PER_NODE)]
        types = (TYPES[place * len(TYPES) // len(self.gpus)] for place in range(len(self.gpus)))
        gpus = ",".join(f"{gpu}:{kind}" for gpu, kind in zip(self.gpus, types, strict=True))
        command += ["--gpus", gpus, "--placement", "lwf-1", "--policy", "srsf-requeue", "--resize"]
        command += ["--memory", "16GB", "--restarts", str(RESTARTS), "--lost-after", f"{LOST_AFTER_S:g}s"]
        begins = self.said.stat().st_size if self.said.exists() else 0
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        deadline_s = time.monotonic() + _LIMIT_S
        while "manager at " not in (text := self.said.read_bytes()[begins:].decode()):
            if self._process.poll() is not None:
                assert "is not whole" in text, text
                return False
            assert time.monotonic() < deadline_s, text
            time.sleep(0.05)
        self.starts += 1
        return True

    def end(self, number: signal.Signals) -> None:
        """End the manager, which was running until now, by a signal; one that asks lets it clean up."""
        assert self._process is not None
        self.check_running()
        self._process.send_signal(number)
        status = self._process.wait(_LIMIT_S)
        assert status in (-number, 128 + number), (status, self.said.read_text()[-3000:])

    def pause(self, seconds: float) -> None:
        """Stop the manager for a while, as a machine does that is suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def check_running(self) -> None:
        """A manager never ends by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self.said.read_text()[-3000:]

    def kill(self) -> None:
        """Leave no manager, whatever has happened."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def resident_bytes(self) -> int:
        """The memory that the manager takes."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096

    def open_files(self) -> int:
        """The files that the manager has open."""
        assert self._process is not None
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    # Its clients.

    def ask(self, request: FromClient) -> ManagerAnswer | str | None:
        """The manager's answer; why it refuses; None where it could not be asked, or has not answered."""
        try:
            return ask_manager(contact_of(self.state), request)
        except HocketError as error:
            away = str(error).startswith("the cluster's manager")
            return None if away else str(error)

    # Its ranks.

    def processes(self) -> dict[int, dict[str, str]]:
        """The environment of each process that ranks of this cluster are or have started."""
        found = {}
        for pid in all_pids():
            try:
                environment = first_environment(pid)
            except OSError:  # it has ended
                continue
            if environment.get(_PLACE, "").startswith(f"{self.state}/"):
                found[pid] = environment
        return found
