"""The worker's side: a model whose parameters servers hold, and a connection to each server."""
