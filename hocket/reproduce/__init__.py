"""The five papers again: their tables and figures regenerated, each claim beside what comes out here.

One folder a paper, alike: ``measure.py`` runs what its figures are made of, ``claims.py`` holds the paper's
numbers and how ours are computed, ``figures.py`` draws and lists every figure.
"""

from hocket.reproduce.registry import PAPERS, papers_of, reproduce
from hocket.reproduce.setting import FULL, QUICK, Setting

__all__ = ["FULL", "PAPERS", "QUICK", "Setting", "papers_of", "reproduce"]
