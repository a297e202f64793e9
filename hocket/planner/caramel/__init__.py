"""Caramel: completion order, reduction batches, and windows for groups of gradients (Caramel section 4)."""
