"""Transfers between ranks: buckets, the queue, the channel that reduces them, and the coordinator's order."""
