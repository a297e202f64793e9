"""``python -m hocket`` is ``hocket``."""

from hocket.cli.main import main

main()
