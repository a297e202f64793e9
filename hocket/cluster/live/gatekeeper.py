"""The gate: it brings what ranks say to the engine, and tells ranks that they may go on."""

from __future__ import annotations

import secrets

from hocket.cluster.live.actions import Actions
from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.rank_link import RankLink
from hocket.cluster.live.runnable_jobs import attempt_token
from hocket.launch.control import Guest
from hocket.launch.gate import ChunkRequest, Compute, Computed, FromRank, Go, Held, Join, Transferred


class Gatekeeper:
    """Meets ranks; ``secret``: the cluster's."""

    def __init__(self, context: ManagerContext, secret: str) -> None:
        self._context, self._secret = context, secret

    def token_of(self, guest: Guest) -> str:
        """The token that the guest has to know."""
        number, _, attempt = guest.address.partition("-")
        if guest.role != "rank" or not (number.isdecimal() and attempt.isdecimal()):
            return secrets.token_hex(16)  # which nobody knows
        return attempt_token(self._secret, guest.address)

    def is_current(self, attempt: str, rank: int) -> bool:
        """True if the rank takes part."""
        run = self._context.by_attempt.get(attempt)
        return run is not None and run.ending is None and 0 <= rank < len(run.attempt.gpus)

    def add_rank(self, link: RankLink, message: Join) -> None:
        """A rank has come; one that is here already has lost its other connection."""
        run = self._context.by_attempt[link.attempt]
        if (old := run.links.get(link.rank)) is not None:
            self._forget(run, link.rank)
            old.close()
        run.links[link.rank] = link
        self._context.driver.add_rank(run.record.job.id, link.rank, max(0, message.iteration))
        self._context.decide_soon()

    def handle_message(self, link: RankLink, message: FromRank) -> None:
        """A rank says something."""
        run = self._context.by_attempt.get(link.attempt)
        if run is None or run.links.get(link.rank) is not link:
            return
        job, rank, driver = run.record.job.id, link.rank, self._context.driver
        match message:
            case Compute(number, iteration, part):
                run.compute_requests[rank] = number
                driver.ask_compute(job, rank, iteration, part)
            case Computed(iteration, part):
                driver.note_task_end(job, rank, iteration, part)
            case ChunkRequest(number, iteration, bytes_left, of_bytes) if rank == 0:
                run.transfer_request = number
                driver.ask_transfer(job, iteration, bytes_left, of_bytes, self._context.now_s())
            case Transferred(iteration) if rank == 0:
                driver.note_transfer_end(job, iteration)
        self._context.decide_soon()

    def remove_rank(self, link: RankLink) -> None:
        """A rank has gone."""
        run = self._context.by_attempt.get(link.attempt)
        if run is not None and run.links.get(link.rank) is link:
            self._forget(run, link.rank)
            self._context.decide_soon()

    def _forget(self, run: RunningAttempt, rank: int) -> None:
        if run.links.pop(rank, None) is not None:
            run.compute_requests.pop(rank, None)
            if rank == 0:
                run.transfer_request = None
            self._context.driver.remove_rank(run.record.job.id, rank)

    def let_go(self, actions: Actions) -> None:
        """Tell ranks that they may go on."""
        for job, rank in actions.compute:
            run = self._context.runs[job]
            number = run.compute_requests.pop(rank, None)
            if number is not None and rank in run.links:
                run.links[rank].send(Go(number))
        for job in actions.transfer:
            run = self._context.runs[job]
            number, run.transfer_request = run.transfer_request, None
            if number is not None and 0 in run.links:
                run.links[0].send(Go(number))

    def hold(self) -> None:
        """Tell ranks that wait that we are alive."""
        for run in self._context.runs.values():
            for rank, link in run.links.items():
                if rank in run.compute_requests or (rank == 0 and run.transfer_request is not None):
                    link.send(Held())
