"""Fast forwards of the simulator: iterations that nothing interrupts, passed as one event."""
