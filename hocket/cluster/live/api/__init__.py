"""The HTTP API of a cluster's manager: operations, their description, and who serves them."""
