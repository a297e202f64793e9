"""What a user can do wrong, said in one line: the value, the rule and the fix."""

_LONGEST = 1000


def one_line(message: str) -> str:
    """A message as a terminal or a log takes it: what can be printed, in a line that can be read."""
    line = " ".join(message.split())
    # What a file, a factory or a stranger says may hold anything.
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 100]} ... {line[-95:]}"


class HocketError(Exception):
    """A request that cannot be served as it stands; the command line prints it and exits with status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


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
