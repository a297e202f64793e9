"""The command line: parse, call, print. Nothing is decided here that a library caller could not have."""
