"""The server's side: parameters, their optimizer, a ledger of pushes and pulls, and checkpoints."""
