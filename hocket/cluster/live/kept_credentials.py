"""A cluster's credentials in its state folder: ``key.pem``, ``certificate.pem``, and ``token`` for commands.

Ranks that run know the certificate by its fingerprint, so the next manager has to have the same key: files
that do not fit together are refused, and others are drawn where these were removed. The certificate is kept
for browsers and other clients that know it as a whole; one that is not the key's is replaced.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from hocket.errors import HocketError
from hocket.launch.credentials import Credentials, credentials_of, new_credentials
from hocket.launch.tls import Identity, identity_of_key, pem_fingerprint

CERTIFICATE = "certificate.pem"
_LOST = "ranks that run go on without a gate then"


def kept_credentials(folder: Path) -> Credentials:
    """The credentials of the cluster in ``folder``, drawn where there are none.

    Raises
    ------
    HocketError
        Where other users can read or replace them, or they do not fit together.
    """
    key, token = folder / "key.pem", folder / "token"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o022:
        raise HocketError(f"{folder}: others can write there, jobs too; chmod go-w it")
    if token.exists() and not key.exists():
        raise HocketError(
            f"{token}: {key}, its certificate's private key, is missing; put it back, or remove {token} for "
            f"new ones ({_LOST})"
        )
    drawn = new_credentials()
    _write_where_none(key, drawn.served.key)  # first: see above
    identity = _identity_in(key, token)
    _write_where_none(token, Credentials(drawn.secret, identity.fingerprint).text.encode())
    text = _private(token, "token").decode(errors="replace").strip()
    found = credentials_of(text, str(token), f"remove it for another one ({_LOST})")
    if found.fingerprint != identity.fingerprint:
        raise HocketError(
            f"{token} is for another certificate than that of {key}; put back the file that was there, or "
            f"remove {token} for another one ({_LOST})"
        )
    return replace(found, identity=_with_kept_certificate(identity, folder / CERTIFICATE))


def _with_kept_certificate(identity: Identity, path: Path) -> Identity:
    _write_where_none(path, identity.certificate)
    kept = path.read_bytes()
    try:
        is_its = pem_fingerprint(kept) == identity.fingerprint
    except ValueError:
        is_its = False
    if not is_its:
        path.unlink(missing_ok=True)
        _write_where_none(path, identity.certificate)
        kept = path.read_bytes()
    return replace(identity, certificate=kept)


def _identity_in(key: Path, token: Path) -> Identity:
    try:
        return identity_of_key(_private(key, "private key"))
    except ValueError:
        raise HocketError(
            f"{key}: holds no private key of Hocket's; put it back, or remove it and {token} for new ones "
            f"({_LOST})"
        ) from None


def _private(path: Path, what: str) -> bytes:
    """The bytes of a file that only its owner can read; HocketError for another one."""
    if path.stat().st_mode & 0o077:
        raise HocketError(
            f"{path}: others can read the cluster's {what}; remove 'key.pem' and 'token' there for new ones "
            f"({_LOST}), or chmod 600 it if nobody has"
        )
    return path.read_bytes()


def _write_where_none(path: Path, data: bytes) -> None:
    """Write a file of mode 0600, whole or not at all; one that is there stays, whichever manager wrote it."""
    if path.exists():
        return
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)
