"""The engine that decides: events in, actions out; policies and placements are its rules."""
