"""Planners of fully sharded steps: units, what is prefetched, and what is resharded."""
