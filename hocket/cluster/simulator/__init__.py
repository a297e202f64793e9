"""The simulator: the engine driven by a virtual clock."""
