"""What a user can do wrong, said in one line: the value, the rule and the fix."""

_LONGEST = 1000


class HocketError(Exception):
    """A request that cannot be served as it stands; the command line prints it and exits with status 2."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        # What a file or a factory says may hold anything; a terminal gets only what can be printed, and not
        # more of it than can be read.
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
        super().__init__(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 100]} ... {line[-95:]}")


class FormatError(HocketError):
    """A file or document that breaks its format: names the file, the field and the rule."""

    def __init__(self, source: str, field: str, rule: str) -> None:
        super().__init__(f"{source}: {field}: {rule}" if field else f"{source}: {rule}")


class UnknownNameError(HocketError):
    """A name that is none of the valid ones; the message lists them and the nearest."""

    def __init__(self, kind: str, name: str, valid: "list[str] | tuple[str, ...]") -> None:
        import difflib

        near = difflib.get_close_matches(name, valid, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        choice = f"choose one of: {', '.join(valid)}" if valid else "there are none"
        super().__init__(f"{kind} '{name}' is unknown; {hint}{choice}")
