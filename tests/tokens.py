"""Credentials that are drawn once for the tests of a process."""

from __future__ import annotations

from hocket.launch.credentials import new_credentials

CREDENTIALS = new_credentials()
TOKEN = CREDENTIALS.text
SECRET, FINGERPRINT = CREDENTIALS.secret, CREDENTIALS.fingerprint
