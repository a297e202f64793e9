"""``bench plan`` and ``bench sim``: planners, simulator and predictor by the clock."""
