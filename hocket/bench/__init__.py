"""Benchmarks of real training, each beside what it is to be compared with."""

import hocket.profiler  # noqa: F401  # says in one line where torch is missing
