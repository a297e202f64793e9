"""Placements: one file for each way of choosing the GPUs that a job gets."""
