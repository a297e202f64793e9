"""Tokens as text: whole ones are read as they were drawn, damaged ones are refused in a line."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.launch import Rule, ServedJob
from hocket.launch.control import Guest, TransportError, connect
from hocket.launch.credentials import Credentials, credentials_of, new_credentials
from hocket.launch.processes import server_environment, worker_environment
from tests.serving import wait_until
from tests.tokens import CREDENTIALS, FINGERPRINT, SECRET, TOKEN
from tests.unit.launch.test_relay import impostor

SOME = [*string.ascii_letters[:12], *"0189.+/=- \n\x00\u0663\udcff"]


def read(text: str) -> Credentials:
    return credentials_of(text, "THERE", "take another one")


def test_a_token_is_read_as_it_was_drawn() -> None:
    assert read(TOKEN).text == TOKEN
    assert read(TOKEN).served.fingerprint == FINGERPRINT
    short = CREDENTIALS.without_key
    assert read(short.text) == short
    assert TOKEN.startswith(f"{short.text}.")
    with pytest.raises(HocketError, match="without its private key is for workers"):
        _ = short.served


def test_what_is_shown_of_credentials_holds_no_secret() -> None:
    key = TOKEN.rpartition(".")[2]
    for shown in (repr(CREDENTIALS), repr(CREDENTIALS.identity)):
        assert SECRET not in shown
        assert key[60:90] not in shown


@settings(max_examples=400)
@given(
    place=st.integers(0, len(TOKEN)),
    length=st.integers(0, 80),
    put=st.text(st.sampled_from(SOME), max_size=80),
    short=st.booleans(),
)
def test_a_damaged_token_is_refused_in_a_line(place: int, length: int, put: str, short: bool) -> None:
    whole = CREDENTIALS.without_key.text if short else TOKEN
    text = whole[:place] + put + whole[place + length :]
    found, said = None, ""
    try:
        found = read(text)
    except HocketError as error:
        said = str(error)
    if found is None:
        assert text != whole
        assert said.startswith("THERE holds ")
        assert said.endswith("; take another one")
        assert "\n" not in said
        assert SECRET not in said
        return
    # Another secret, or another fingerprint without a key, can be anybody's.
    assert found.text == text
    if found.identity is not None:
        assert found.identity.key == CREDENTIALS.served.key


@pytest.mark.parametrize("where", [0, 1, 2])
def test_parts_of_two_tokens_do_not_fit_together(where: int) -> None:
    parts, others = TOKEN.split("."), new_credentials().text.split(".")
    mixed = ".".join([*parts[:where], others[where], *parts[where + 1 :]])
    if where:
        with pytest.raises(HocketError, match="THERE holds a token whose private key is another one's"):
            read(mixed)
    else:
        assert read(mixed).secret == others[0]


def test_a_server_with_another_fingerprint_hears_nothing() -> None:
    other = Credentials(SECRET, new_credentials().fingerprint)
    for credentials in (other, read(other.text), CREDENTIALS):
        with impostor() as theirs:
            with pytest.raises(TransportError, match="another certificate than the token's"):
                connect(theirs.address, credentials, Guest("worker", 0, ""), 5.0)
            wait_until(lambda theirs=theirs: bool(theirs.heard))
            assert theirs.heard == [b""]


def test_workers_are_not_told_the_private_key() -> None:
    job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=Rule())
    key = TOKEN.rpartition(".")[2]
    assert key in server_environment(job, "127.0.0.1:2")["HOCKET_JOB"]
    told = worker_environment(job, "127.0.0.1:2", 0)
    assert not any(key in value for value in told.values())
    assert CREDENTIALS.without_key.text in told["HOCKET_JOB"]
