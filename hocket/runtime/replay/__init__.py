"""A step replayed in place of a model: operations are slept through, transfers are real.

So a machine with two cores holds many workers, and what a predictor says of them can be checked.
"""
