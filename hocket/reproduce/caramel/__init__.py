"""Caramel: Figures 2, 4 and 8 to 14.

Source: Hashemi et al., "Caramel: Accelerating Decentralized Distributed Deep Learning with Computation
Scheduling" (MLSys 2020).
"""

from hocket.reproduce.caramel.caramel_plots import reproduce

__all__ = ["reproduce"]
