"""What the site's builder changes on the way: docstrings refer as Sphinx does, which it does not know."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):(?=<code>|`)")


def on_page_content(html: str, **_: Any) -> str:
    """Leave the roles of references out, and their names in."""
    return _ROLE.sub("", html)
