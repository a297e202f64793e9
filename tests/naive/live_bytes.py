"""Memory told the plain way: after every operator on real tensors, the sum of all storages that are alive."""

from __future__ import annotations

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Keeps the most bytes of storages, made inside, that were alive at once."""

    def __init__(self):
        super().__init__()
        self.most, self._made = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {
            t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in given:
                self._made.append(weakref.ref(tensor.untyped_storage()))
        alive = [storage for reference in self._made if (storage := reference()) is not None]
        self._made = [weakref.ref(storage) for storage in alive]
        self.most = max(self.most, sum({s._cdata: s.nbytes() for s in alive}.values()))
        return result
