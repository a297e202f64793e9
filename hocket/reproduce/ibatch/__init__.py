"""iBatch (Wang et al., AAAI 2019): Figures 3 to 7."""

from hocket.reproduce.ibatch.ibatch_plots import reproduce

__all__ = ["reproduce"]
