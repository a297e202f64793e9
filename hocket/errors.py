"""What a user can do wrong, said in one line: the value, the rule and the fix."""


class HocketError(Exception):
    """A request that cannot be served as it stands; the command line prints it and exits with status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


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
        super().__init__(f"{kind} '{name}' is unknown; {hint}choose one of: {', '.join(valid)}")
