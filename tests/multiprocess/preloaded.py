"""Imports of others' packages that ranks of tests share: the process that forks them has made them once.

None of Hocket's own, of which tests change some before they are imported (:mod:`tests.delayed.mutations`).
"""

import numba
import torch._dynamo
import torch.distributed.fsdp
import torch.nn.parallel

__all__ = ["numba", "torch"]
