"""Parameter servers in real training: the servers, the workers' side, and what travels between them."""
