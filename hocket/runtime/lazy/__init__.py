"""Gradients, parameters and optimizer state whose values are still to come, and every way to look at them."""
