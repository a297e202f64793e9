"""Lower bounds of a step's time, whatever the plan."""
