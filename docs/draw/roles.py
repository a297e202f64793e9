"""An extension of Griffe, which reads docstrings for the site: roles of references go, their names stay.

Docstrings refer as Sphinx does (``:class:`Plan```), which Griffe does not know.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):(?=`)")


class Roles(griffe.Extension):
    """The extension; zensical.toml names it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Leave the roles out of one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub("", obj.docstring.value)
