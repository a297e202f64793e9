"""Benchmarks: real training, planners and the simulator, each beside what it is to be compared with."""
