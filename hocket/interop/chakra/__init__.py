"""Chakra execution traces: steps written as such, and steps read from them."""
