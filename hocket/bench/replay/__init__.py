"""``bench predict`` and ``bench orders``: steps replayed on an emulated cluster."""
