"""Hocket in place of DistributedDataParallel inside of frameworks: one file for each."""
