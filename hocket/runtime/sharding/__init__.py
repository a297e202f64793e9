"""Fully sharded training: torch's own ``fully_shard`` (FSDP2), with the units and the prefetch of a plan."""
