"""Scheduling policies: one file each; the order of jobs, and which transfers may run together."""
