"""A device for tests, on processors, whose work is done later than it is asked for, as a GPU's is."""
