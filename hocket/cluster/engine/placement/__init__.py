"""Which GPUs a job gets: one file for each way of choosing them."""
