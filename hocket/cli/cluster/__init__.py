"""``hocket cluster``: job sets, simulations, and the commands of a live cluster."""
