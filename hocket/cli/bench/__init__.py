"""``hocket bench``: the commands and their options."""
