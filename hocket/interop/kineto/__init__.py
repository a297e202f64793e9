"""Kineto traces (``torch.profiler``'s) as steps: read, cut, joined to their shapes, and checked."""
