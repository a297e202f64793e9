"""TicTac (Hashemi et al., SysML 2019): Table 1 and Figures 4, 9 to 15."""

from hocket.reproduce.tictac.tictac_plots import reproduce

__all__ = ["reproduce"]
