"""The five papers again: their tables and figures regenerated, each claim beside what comes out here.

One folder a paper, alike: ``*_measurements.py`` runs all that its figures need, ``*_claims.py`` holds the
paper's numbers and computes ours, ``*_plots.py`` draws and lists every figure.
"""

from hocket.reproduce.papers import PAPERS, papers_of, reproduce
from hocket.reproduce.setting import FULL, QUICK, ReproductionSetting

__all__ = ["FULL", "PAPERS", "QUICK", "ReproductionSetting", "papers_of", "reproduce"]
