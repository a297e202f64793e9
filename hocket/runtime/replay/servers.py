"""A replay with parameter servers: real servers, and a worker's real client, driven by a clock.

A server runs as it does in training and applies every push, at a learning rate of 0.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch

from hocket.ending import kill
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.launch import ServedJob
from hocket.launch.job import JOB_VARIABLE
from hocket.runtime.ps.wire.layout import Frame
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.ps.wire.order_statistics import Direction
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.replay.replayed_processor import Mailbox


def serve(job: ServedJob, index: int) -> None:
    """Be server ``index`` of ``job`` until its workers have finished.

    It is a process of its own, as a server's threads live as long as that does.

    Raises
    ------
    HocketError
        When it ends before its workers.
    """
    command = [sys.executable, "-P", "-m", "hocket.runtime.ps.server.server", str(index)]
    process = subprocess.Popen(command, env={**os.environ, JOB_VARIABLE: job.encoded()})
    try:
        if status := process.wait():
            raise HocketError(f"server {index} ended with status {status} in the middle of a replay")
    finally:
        kill([process])


class WorkersSide:
    """A worker's client, under ``plan``; pulled parameters are messages by their index in ``graph``.

    To be used as a context: the worker has finished, or is lost, when it ends.

    Raises
    ------
    HocketError
        When servers cannot be reached; in every method when one is lost or does not answer in time.
    """

    def __init__(
        self, graph: StepGraph, plan: Plan, job: ServedJob, worker: int, mailbox: Mailbox, *, drawn_anew: bool
    ) -> None:
        tensors = tuple(
            TensorSpec(name, shape, dtype)
            for name, shape, dtype in zip(
                graph.parameter_names, graph.parameter_shapes, graph.parameter_dtypes, strict=True
            )
        )
        group = torch.optim.SGD([torch.zeros(1)], lr=0.0).param_groups[0]
        self._settings = [{name: value for name, value in group.items() if name != "params"}]
        spec = Spec(parameters=tensors, groups=(0,) * len(tensors), optimizer="SGD", settings=self._settings)
        self._gradients = [torch.zeros(t.shape, dtype=t.torch_dtype) for t in tensors]
        self._job, self._mailbox = job, mailbox
        values = dict(zip(graph.parameter_names, self._gradients, strict=True))
        self._client = Client(job, worker, spec, lambda: (values, {}), self._note_transfer)
        self._client.use_plan(plan, drawn_anew=drawn_anew)

    def __enter__(self) -> WorkersSide:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._client.finish()
        else:
            self._client.close()

    def begin(self) -> None:
        """Ask for the pulls of the next step."""
        self._client.request_pulls()

    def take(self, *, wait: bool) -> list[tuple[int, float]]:
        """The parameters that arrived since the last call, and when; with ``wait``, at least one."""
        timeout_s = self._job.timeout_s
        if wait and not self._client.wait_until(lambda: not self._mailbox.empty, timeout_s):
            raise HocketError(f"no pull arrived within {timeout_s:g} s; a server may be stuck")
        return self._mailbox.take(wait=False)

    def push(self, parameter: int) -> None:
        """The gradient of ``parameter`` is complete."""
        self._client.push(parameter, self._gradients[parameter])

    def end(self) -> None:
        """Commit the step's pushes; the next step's pulls come once they have been applied."""
        self._client.commit(self._settings)

    @property
    def out_of_order(self) -> float:
        """The fraction of pulls that one of a later rank overtook."""
        return self._client.order.out_of_order("pull")

    def _note_transfer(
        self, direction: Direction, server: int, frame: Frame, started_s: float, ended_s: float
    ) -> None:
        if direction == "pull":
            for place in frame.parameters:
                parameter = self._client.homes.of[server][place]
                if self._client.has_parameter(parameter):  # with its last slice
                    self._mailbox.deliver(parameter)
