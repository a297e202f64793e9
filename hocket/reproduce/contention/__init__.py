"""Communication contention (Wang et al., 2020): Figures 2 and 4 to 6, Tables III to V."""

from hocket.reproduce.contention.contention_plots import reproduce

__all__ = ["reproduce"]
