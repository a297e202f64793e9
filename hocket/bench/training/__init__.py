"""``bench train``: real training by the clock, beside DDP's."""
