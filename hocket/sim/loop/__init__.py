"""The event loop of the simulator, its lanes and its channels."""
