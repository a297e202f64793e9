"""Caramel (Hashemi et al., MLSys 2020): Figures 2, 4 and 8 to 14."""

from hocket.reproduce.caramel.caramel_plots import reproduce

__all__ = ["reproduce"]
