"""Transfers of the cluster engine's naive twin: admitted, preempted, and shared links."""

from __future__ import annotations

from fractions import Fraction

from tests.naive.cluster_resizing import Resizing
from tests.naive.cluster_state import Run, is_even


class Transfers(Resizing):
    """Transfers of jobs on several servers."""

    def per_byte(self) -> dict[Run, Fraction]:
        """Seconds a byte of each transfer under way."""
        running = [run for run in self.runs if run.running]
        if self.cluster.sharing == "equation5":
            costs = {}
            for run in running:
                k = max(sum(s in other.servers for other in running) for s in run.servers)
                costs[run] = k * self.b + (k - 1) * self.eta
            return costs
        rate = {run: Fraction(0) for run in running}
        growing = set(running)
        while growing:
            links = {link for run in growing for link in self.links(run)}
            room = {}
            for link in links:
                used = sum((rate[run] for run in running if link in self.links(run)), Fraction(0))
                room[link] = (self.capacity(link) - used) / sum(link in self.links(run) for run in growing)
            least = min(room.values())
            for run in growing:
                rate[run] += least
            full = {link for link in links if room[link] == least}
            growing = {run for run in growing if not full & set(self.links(run))}
        return {run: 1 / rate[run] for run in running}

    def sharing(self, server: int) -> list[Run]:
        return [run for run in self.runs if run.running and server in run.servers]

    def admits(self, run: Run) -> bool:
        size = run.bytes_left
        for server in run.servers:
            others = self.sharing(server)
            if self.policy == "ada-srsf":
                if len(others) > 1:
                    return False
                for other in others:
                    threshold = self.b / (2 * (self.b + self.eta))
                    if size and size >= threshold * other.bytes_left:
                        return False
            elif self.policy == "kway":
                left = sorted(other.bytes_left for other in others)
                totals = [self.total_finish(left, size, after) for after in range(len(left) + 1)]
                if totals[0] > min(totals):
                    return False
            else:
                most = int(self.policy[5:]) if self.policy[5:].isdecimal() else 1
                if len(others) >= most:
                    return False
        return True

    def total_finish(self, left: list[Fraction], size: Fraction, after: int) -> Fraction:
        """Finish times added up, of transfers on one link and one more that starts after so many ends."""
        running = [*left, size] if after == 0 else list(left)
        time, total, ended = Fraction(0), Fraction(0), 0
        while running:
            k, least = len(running), min(running)
            time += least * (k * self.b + (k - 1) * self.eta)
            running = [rest - least for rest in running]
            for _ in range(running.count(0)):
                running.remove(0)
                total += time
                ended += 1
                if ended == after:
                    running.append(size)
        return total

    def admit(self) -> None:
        for run in sorted((run for run in self.runs if run.ready), key=self.key):
            if self.admits(run):
                self.start_transfer(run)

    def preempt(self) -> None:
        active = sorted((run for run in self.runs if run.ready or run.running), key=self.transfer_key)
        claimed: set[int] = set()
        claims = []
        for run in active:
            if not claimed & set(run.servers):
                claimed |= set(run.servers)
                claims.append(run)
        for run in active:
            if run.running and run not in claims and run.whole and run.fresh_since != self.now:
                run.running, run.ready = False, True
        for run in claims:
            if run.ready and not any(self.sharing(s) for s in run.servers):
                self.start_transfer(run)

    def start_transfer(self, run: Run) -> None:
        run.ready, run.running, run.fresh_since = False, True, self.now
        run.uneven = run.uneven or not is_even(self.now)
