"""``hocket models``: the zoo."""
