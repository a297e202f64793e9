"""Observation of training: spans, liveness of ranks, barriers, and the answers that ``explain()`` gives."""
