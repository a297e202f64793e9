"""Steps and plans of both architectures, lowered to the event loop's program."""
