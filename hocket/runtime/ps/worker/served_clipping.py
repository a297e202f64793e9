"""Clipping by norm where servers step: gradients that have left are multiplied there."""

from __future__ import annotations

import functools
from collections.abc import Collection

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.training.hooks import Parameter


class Clipping:
    """The state of ``hocket.clip_grad_norm_`` in a step.

    ``scale``: what servers multiply its gradients by; ``norm_seen``: whether they have the gradients whose
    norm the script has seen. The rest of the script follows from them, and servers cannot give them back.
    """

    def __init__(self, client: Client, parameters: Collection[Parameter]) -> None:
        self._client = client
        self._dtype = functools.reduce(torch.promote_types, {p.dtype for p in parameters})
        self.forget()

    def forget(self) -> None:
        """Another step begins."""
        self.scale, self.norm_seen = 1.0, False

    def clip_reduced(self, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> torch.Tensor:
        """Clip the mean of what all workers push, all of which has left here; its norm."""
        self.norm_seen = True
        # Servers have them as they were pushed: as torch's own, a second clipping clips what the first left.
        norms = torch.tensor(self._client.norms(norm_type), dtype=self._dtype) * self.scale
        norm: torch.Tensor = torch.linalg.vector_norm(norms, norm_type)
        if error_if_nonfinite and not norm.isfinite():
            raise RuntimeError(
                f"the gradients' norm of order {norm_type} is {norm.item()}, which clips nothing"
            )
        self._clip(norm, max_norm)
        return norm

    def note_own_clipping(self, norm: torch.Tensor, max_norm: float) -> None:
        """Torch has clipped by ``norm`` what has left already."""
        self.norm_seen = True
        self._clip(norm, max_norm)

    def refuse_another(self, name: str) -> None:
        """Refuse a gradient of ``name`` that comes behind the norm: it would be lost, or count as it was."""
        if self.norm_seen:
            raise HocketError(
                f"the gradient of '{name}' came again behind hocket.clip_grad_norm_, whose gradients servers"
                " cannot give back; call optimizer.step() first, and leave a batch out before its backward"
                " pass"
            )

    def _clip(self, norm: torch.Tensor, max_norm: float) -> None:
        self.scale *= float(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
