"""A cluster's key and token in its state folder: drawn once, kept, and refused where they do not fit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.cluster.live import kept_credentials as kept
from hocket.cluster.live.kept_credentials import kept_credentials
from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import AskStatus
from hocket.cluster.live.runnable_jobs import attempt_token
from hocket.errors import HocketError
from hocket.launch.control import Guest, TransportError, connect
from hocket.launch.credentials import Credentials, new_credentials
from hocket.launch.gate import GIVEN_UP
from tests.unit.cluster.live.clusters import running


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder of a cluster that has credentials."""
    kept_credentials(tmp_path / "state")
    return tmp_path / "state"


def refused(state: Path) -> str:
    with pytest.raises(HocketError) as error:
        kept_credentials(state)
    return str(error.value)


def test_they_are_kept_and_nobody_else_can_read_them(state: Path) -> None:
    first, second = kept_credentials(state), kept_credentials(state)
    assert first.served.fingerprint == first.fingerprint
    assert second.text == first.text
    assert {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()} == {
        "certificate.pem": 0o600,
        "key.pem": 0o600,
        "token": 0o600,
    }
    assert (state / "token").read_text() == first.without_key.text
    assert (state / "key.pem").read_bytes() == first.served.key


def test_a_manager_that_is_restarted_is_known_to_ranks_and_commands_of_the_one_before(state: Path) -> None:
    before = kept_credentials(state).without_key
    rank = Credentials(attempt_token(before.secret, "7-1"), before.fingerprint)
    for _ in range(2):
        with running(state, until_idle=False, credentials=kept_credentials(state)) as cluster:
            address = cluster.manager.address
            assert ask_manager(Contact(address=address, token=before.text), AskStatus()).status is not None
            with pytest.raises(TransportError, match=GIVEN_UP):  # which strangers are not told
                connect(address, rank, Guest("rank", 0, "7-1"), 5.0)


def test_without_the_token_there_is_another_one_of_the_same_certificate(state: Path) -> None:
    first = kept_credentials(state)
    (state / "token").unlink()
    second = kept_credentials(state)
    assert second.fingerprint == first.fingerprint
    assert second.secret != first.secret


def test_what_does_not_fit_together_is_refused_and_stays(state: Path) -> None:
    key, token = state / "key.pem", state / "token"
    mine = key.read_bytes(), token.read_bytes()
    for path in (key, token):
        path.chmod(0o640)
        assert f"{path}: others can read the cluster's" in refused(state)
        path.chmod(0o600)
    token.write_text("0" * 64)
    assert "64 characters that are no token of Hocket's; remove it for another one" in refused(state)
    token.write_bytes(b"\xff\n")
    assert "characters that are no token of Hocket's" in refused(state)
    token.write_text(new_credentials().without_key.text)
    assert f"{token} is for another certificate than that of {key}; put back" in refused(state)
    token.write_bytes(mine[1])
    key.write_bytes(mine[0][:100])
    assert f"{key}: holds no private key of Hocket's; put it back, or remove it and {token}" in refused(state)
    key.unlink()
    assert f"{token}: {key}, its certificate's private key, is missing; put it back" in refused(state)
    assert not key.exists()
    key.write_bytes(mine[0])
    key.chmod(0o600)
    assert kept_credentials(state).without_key.text.encode() == mine[1]
    state.chmod(0o770)
    assert f"{state}: others can write there" in refused(state)


def test_an_end_in_between_leaves_a_folder_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = kept.os.link

    def link(new: str, path: Path) -> None:
        plain(new, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(kept.os, "link", link)
    for left in (["key.pem"], ["key.pem", "token"]):
        with pytest.raises(KeyboardInterrupt):
            kept_credentials(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == left
    monkeypatch.undo()
    assert kept_credentials(tmp_path).served.fingerprint == kept_credentials(tmp_path).fingerprint


def test_managers_that_begin_at_the_same_time_agree(tmp_path: Path) -> None:
    found: list[str] = []
    begin = threading.Barrier(8)

    def work() -> None:
        begin.wait(30)
        found.append(kept_credentials(tmp_path).text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [kept_credentials(tmp_path).text] * 8


@settings(max_examples=60)
@given(place=st.integers(0, 240), length=st.integers(0, 40), put=st.binary(max_size=40))
def test_a_damaged_key_is_refused_in_a_line(
    tmp_path_factory: pytest.TempPathFactory, place: int, length: int, put: bytes
) -> None:
    state = tmp_path_factory.mktemp("state")
    mine = kept_credentials(state)
    key = state / "key.pem"
    whole = key.read_bytes()
    key.write_bytes(whole[:place] + put + whole[place + length :])
    found, said = None, ""
    try:
        found = kept_credentials(state)
    except HocketError as error:
        said = str(error)
    if found is None:
        assert "\n" not in said
        assert str(key) in said
    else:  # as where something stands before or behind it
        assert found.served.key == mine.served.key
