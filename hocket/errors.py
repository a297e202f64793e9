"""Errors that a user can cause, each in one line: the value, the rule and the fix."""

_LONGEST = 1000
_FEW = 3  # names that begin as a mistaken one, all of which are suggested


def one_line(message: str) -> str:
    """A message as a terminal or a log takes it: what can be printed, in a line that can be read."""
    line = " ".join(message.split())
    # Text of a file, a factory or a stranger may hold anything.
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 100]} ... {line[-95:]}"


def reason(error: BaseException) -> str:
    """The line of an exception's text that says why: its first, with the next where that only announces it.

    Lines behind it are hints, as those of torch.compile. "" for an exception without text.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    announces = len(lines) > 1 and lines[0].endswith(":")
    return " ".join(lines[: 2 if announces else 1])


class HocketError(Exception):
    """A request that cannot be served as it stands: one line with the value, the rule and the fix.

    The command line prints the line and exits with status 2. All other errors of Hocket's are of this kind.

    Examples
    --------
    >>> import hocket
    >>> try:
    ...     hocket.Network(bandwidth_bps=0)
    ... except hocket.HocketError as error:
    ...     print(error)
    bandwidth 0 bit/s is not between 1 and 1e18; give e.g. 10e9
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class FormatError(HocketError):
    """A file or document that breaks its format: names the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> try:
    ...     hocket.load_plan("nowhere.json")
    ... except hocket.FormatError as error:
    ...     print(error)
    nowhere.json: cannot be read: No such file or directory
    """

    def __init__(self, source: str, field: str, rule: str) -> None:
        super().__init__(f"{source}: {field}: {rule}" if field else f"{source}: {rule}")


class UnknownNameError(HocketError):
    """A name that is none of the valid ones; the message lists them and the nearest, or those that begin so.

    ``remark``: a clause at the end of the message.

    Examples
    --------
    >>> import hocket
    >>> try:
    ...     hocket.Network(pattern="rings")
    ... except hocket.UnknownNameError as error:
    ...     print(error)  # doctest: +ELLIPSIS
    pattern 'rings' is unknown; did you mean 'ring'? choose one of: ring, ...
    """

    def __init__(self, kind: str, name: str, valid: "list[str] | tuple[str, ...]", remark: str = "") -> None:
        import difflib

        near = [other for other in valid if name and other.startswith(name)]
        near = near if 0 < len(near) <= _FEW else difflib.get_close_matches(name, valid, n=1)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        choice = f"choose one of: {', '.join(valid)}" if valid else "there are none"
        said = f"{kind} '{name}' is unknown; {hint}{choice}"
        super().__init__(f"{said}; {remark}" if remark else said)
