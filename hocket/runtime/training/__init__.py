"""A model that trains with AllReduce: hooks, first readers, rounds, optimizers, and the choice of a plan."""
