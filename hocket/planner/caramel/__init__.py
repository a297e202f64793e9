"""Caramel: completion order, batches of gradients, and the pass each travels beside (Caramel section 4)."""
