"""A job's or a cluster's secret, and the certificate that its servers are known by; as text, a token.

``SECRET.FINGERPRINT`` is for processes that connect, ``SECRET.FINGERPRINT.KEY`` for those that serve. The
secret and the fingerprint are in hex, the key is PEM's base64 of a private key in PKCS #8. Imports no torch.
"""

from __future__ import annotations

import functools
import re
import secrets
from dataclasses import dataclass, field, replace

from hocket.errors import HocketError
from hocket.launch.tls import Identity, identity_of_key, new_identity

_SECRET_BYTES = 32
_FORM = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})(?:\.([A-Za-z0-9+/=]+))?")
_BEFORE, _AFTER = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"


@dataclass(frozen=True)
class Credentials:
    """A secret, and the certificate of servers: its ``fingerprint``; ``identity`` where its key is known."""

    secret: str = field(repr=False)
    fingerprint: str
    identity: Identity | None = field(default=None, repr=False)

    @property
    def without_key(self) -> Credentials:
        """The same for those that only connect."""
        return replace(self, identity=None)

    @property
    def text(self) -> str:
        """The token."""
        known = f"{self.secret}.{self.fingerprint}"
        return known if self.identity is None else f"{known}.{_body(self.identity.key)}"

    @property
    def served(self) -> Identity:
        """The identity of a server; HocketError where the private key is not known."""
        if self.identity is None:
            raise HocketError("a token without its private key is for workers; give servers all of it")
        return self.identity


def new_credentials() -> Credentials:
    """A secret and a private key that are drawn now."""
    identity = new_identity()
    return Credentials(secrets.token_hex(_SECRET_BYTES), identity.fingerprint, identity)


@functools.lru_cache(maxsize=64)
def credentials_of(text: str, source: str, fix: str) -> Credentials:
    """The credentials that the token ``text`` holds; ``source``: where it stands, ``fix``: how to get one.

    Raises
    ------
    HocketError
        Where it is of another form, or its parts do not fit together; the line holds nothing of it.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise HocketError(f"{source} holds {len(text)} characters that are no token of Hocket's; {fix}")
    secret, fingerprint, key = form.groups()
    if key is None:
        return Credentials(secret, fingerprint)
    try:
        identity = identity_of_key(f"{_BEFORE}\n{key}\n{_AFTER}\n".encode())
    except ValueError:
        raise HocketError(f"{source} holds a token whose private key is damaged; {fix}") from None
    if identity.fingerprint != fingerprint or _body(identity.key) != key:
        raise HocketError(f"{source} holds a token whose private key is another one's; {fix}")
    return Credentials(secret, fingerprint, identity)


def _body(key: bytes) -> str:
    return "".join(key.decode().removeprefix(_BEFORE).partition(_AFTER)[0].split())
