"""Communication contention: Figures 2 and 4 to 6, Tables III to V.

Source: Wang et al., "Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs"
(2020).
"""

from hocket.reproduce.contention.contention_plots import reproduce

__all__ = ["reproduce"]
