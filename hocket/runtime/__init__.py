"""Real training on torch.distributed: a plan in force."""

from hocket.runtime.distribute import distribute

__all__ = ["distribute"]
