"""Throughput prediction (Li et al., ICPE 2020): Figures 2, 3c, 10, 12 to 14, 17 to 25 and Table 1."""

from hocket.reproduce.prediction.prediction_plots import reproduce

__all__ = ["reproduce"]
