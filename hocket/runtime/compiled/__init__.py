"""Models under ``torch.compile``: traced graphs that call the runtime where eager code has hooks."""
