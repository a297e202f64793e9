"""TicTac: Table 1 and Figures 4, 9 to 15.

Source: Hashemi et al., "TicTac: Accelerating Distributed Deep Learning with Communication Scheduling" (SysML
2019).
"""

from hocket.reproduce.tictac.tictac_plots import reproduce

__all__ = ["reproduce"]
