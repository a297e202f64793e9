"""The HTTP API, called as its description says by a client that knows nothing else of Hocket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hocket.cluster.live.api import operations
from hocket.cluster.live.api.openapi import description
from hocket.cluster.live.api.operations import OPERATIONS, call_of, message_of
from hocket.cluster.live.kept_credentials import kept_credentials
from hocket.cluster.live.manager_address import Contact, ManagerLine, leave_contact
from hocket.cluster.live.manager_messages import (
    AskEvents,
    AskJob,
    AskJobs,
    AskLog,
    AskStatus,
    AskWhy,
    Cancel,
    Drain,
    FromClient,
    Submit,
)
from hocket.cluster.live.nodes import local_nodes
from hocket.errors import HocketError
from hocket.launch.credentials import new_credentials
from tests.tokens import CREDENTIALS, TOKEN
from tests.unit.cluster.live.clusters import LIMIT_S, Running, live_job, running
from tests.unit.cluster.live.http_calls import AUTHORIZED, call, connected, pinned
from tests.unit.cluster.live.test_manager import events, noting

ROOT = Path(__file__).parents[4]
SPEAKS = "import time\nfor k in range(3): print('line', k, flush=True); time.sleep(0.3)"
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, until_idle=False) as found:
        yield found


def row(name: str, *command: str, **changes: Any) -> dict[str, Any]:
    job = live_job(name, command=command or None, **changes)
    return {key: value for key, value in msgspec.to_builtins(job).items() if value is not None}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"format": "hocket.jobs/1", "jobs": list(rows)}


def server_sent(address: str, target: str, **headers: str) -> Iterator[tuple[str, Any]]:
    """Events and their data, as they come, to the stream's end."""
    connection = connected(address)
    connection.request("GET", target, headers=AUTHORIZED | headers)
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
    fields: dict[str, str] = {}
    try:
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield fields["event"], json.loads(fields["data"])
                fields = {}
    finally:
        connection.close()


def test_a_job_is_submitted_followed_and_cancelled_by_the_description_alone(cluster: Running) -> None:
    address = cluster.manager.address
    described = call(address, "/openapi.json").body
    path_of = {
        operation["operationId"]: path
        for path, methods in described["paths"].items()
        for operation in methods.values()
    }
    stays = row("stays", sys.executable, "-c", SPEAKS + "\ntime.sleep(100)")
    submitted = call(address, path_of["submit"], document(row("speaks", sys.executable, "-c", SPEAKS), stays))
    assert submitted[:2] == (200, {"notes": ["speaks: queued", "stays: queued"]})
    *parts, (last, end) = server_sent(address, path_of["follow_log"].format(job="speaks"))
    assert [name for name, _ in parts] == ["log"] * len(parts)
    assert "".join(part["part"]["text"] for _, part in parts) == "line 0\nline 1\nline 2\n"
    assert last == "end"
    assert end["reason"].startswith("finished, ")
    follows = server_sent(address, path_of["follow_log"].format(job="stays"))
    assert next(follows)[0] == "log"
    assert call(address, path_of["cancel"].format(job="stays"), b"").body == {"notes": ["stays: cancelled"]}
    assert list(follows)[-1][0] == "end"  # what is followed ends with the job
    assert call(address, path_of["job"].format(job="stays")).body["jobs"][0]["state"] == "cancelled"
    assert call(address, path_of["why"].format(job="stays")).body["notes"][0].startswith("stays: ")
    told = [data["what"] for _, data in zip(range(3), stream_of(address, path_of), strict=False)]
    assert told == [
        "placed on node0, attempt 1",
        "is cancelled by a command; its ranks are ending",
        "cancelled",
    ]


def stream_of(address: str, path_of: dict[str, str]) -> Iterator[Any]:
    for name, data in server_sent(address, path_of["follow_events"] + "?job=stays"):
        assert name == "event"
        yield data


def test_answers_are_of_the_schemas_that_the_description_has(cluster: Running) -> None:
    address = cluster.manager.address
    described = call(address, "/openapi.json").body
    assert described == json.loads(json.dumps(description()))
    call(address, "/v1/jobs", document(row("a"), row("b", gpus=4, arrival_s=1e6)))
    cluster.until(lambda s: s.jobs[0].state == "finished")
    for target, path in (
        *((f"/v1/{name}", f"/v1/{name}") for name in ("jobs", "status", "events")),
        *((f"/v1/jobs/a{part}", f"/v1/jobs/{{job}}{part}") for part in ("", "/why", "/log")),
        ("/v1/jobs?state=queued&all=true", "/v1/jobs"),
    ):
        answer = call(address, target)
        responses = described["paths"][path]["get"]["responses"]
        schema = responses["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.body, {**schema, "components": described["components"]})
        assert list(answer.body) == list(schema["properties"])
    assert [job["id"] for job in answer.body["jobs"]] == ["b"]
    after = call(address, "/v1/events?after=1&job=a").body["events"]
    assert all(event["number"] > 1 and event["job"] == "a" for event in after)
    first, second = (
        next(server_sent(address, "/v1/events/follow", **{"Last-Event-ID": str(last)})) for last in (0, 1)
    )
    assert (first[1]["number"], second[1]["number"]) == (1, 2)


def test_the_description_in_the_documentation_is_todays() -> None:
    kept = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert kept == json.loads(json.dumps(description())), "scripts/write_openapi.py writes it"


def test_who_does_not_say_the_token_is_told_nothing(cluster: Running, tmp_path: Path) -> None:
    address = cluster.manager.address
    token = AUTHORIZED["Authorization"].removeprefix("Bearer ")
    paths = [operation.path.format(job="a", node="node0") for operation in OPERATIONS]
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": token},
        {"Authorization": f"Bearer {token}0"},
    ]
    for path in (*paths, "/metrics", "/openapi.json", "/", "/nothing"):
        answer = call(address, path, headers={})
        assert (answer.status, list(answer.body)) == (401, ["refused"])
        assert answer.headers["Connection"] == "close"
    for headers in wrong:
        assert call(address, "/v1/jobs", document(row("a")), headers).status == 401
    assert call(address, "/v1/jobs").body == {"jobs": []}
    said = " ".join(what for _, _, what in events_of(cluster))
    assert "127.0.0.1 was refused: it does not know the token" in said
    assert token[:64] not in said


def events_of(cluster: Running) -> list[tuple[float, str | None, str]]:
    found = cluster.ask(AskEvents()).events
    assert found is not None
    return [(event.time_s, event.job, event.what) for event in found]


def test_odd_requests_are_refused_in_a_line(cluster: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    address = cluster.manager.address
    job = row("a")
    for status, why, target, body in (
        (404, "job 'nobody' is unknown", "/v1/jobs/nobody", None),
        (404, "job 'nobody' is unknown", "/v1/events?job=nobody", None),
        (404, "job 'nobody' is unknown", "/v1/events/follow?job=nobody", None),
        (404, "node 'node9' is unknown", "/v1/nodes/node9/drain", {"on": True}),
        (404, "GET /v2: Not Found", "/v2", None),
        (405, "Method Not Allowed", "/v1/status", {}),
        (400, "'al' is no parameter of GET /v1/status; it takes all", "/v1/status?al=true", None),
        (400, "GET /v1/status: Expected `bool`", "/v1/status?all=perhaps", None),
        (400, "Invalid enum value 'gone'", "/v1/jobs?state=gone", None),
        (400, "Expected `int` >= 0", "/v1/events?after=-1", None),
        (400, "is no JSON object", "/v1/nodes/node0/drain", b"[" * 100_000),
        (400, "the request: ", "/v1/jobs", b"\xff"),
        (400, "missing required field `format`", "/v1/jobs", {"jobs": [job]}),
        (400, "field 'priorty' is unknown", "/v1/jobs", document({**job, "priorty": 1})),
        (400, "jobs[0].folder: 'here' is relative", "/v1/jobs", document({**job, "folder": "here"})),
        (400, "can never be placed", "/v1/jobs", document(row("b", gpus=100))),
    ):
        answer = call(address, target, body)
        assert (answer.status, why in answer.body["refused"]) == (status, True), answer
        assert "\n" not in answer.body["refused"]
    assert call(address, "/v1/jobs").body == {"jobs": []}

    async def failing(_: FromClient) -> Any:
        raise RuntimeError("there is\na slip")

    object.__setattr__(cluster.manager._backend, "serve", failing)
    answer = call(address, "/v1/status")
    monkeypatch.undo()
    assert (answer.status, "failed at it: RuntimeError" in answer.body["refused"]) == (500, True)


def test_a_body_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.api.application.MOST_BYTES", 1000)
    monkeypatch.setattr("hocket.cluster.live.api.application._BODY_S", 0.5)
    with running(tmp_path, until_idle=False) as cluster:
        address = cluster.manager.address
        assert call(address, "/v1/jobs", b" " * 1001).status == 413
        assert call(address, "/v1/jobs", b" " * 1001, headers={}).status == 401
        connection = connected(address)
        connection.putrequest("POST", "/v1/jobs")
        for name, value in {**AUTHORIZED, "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"fff\r\n" + b" " * 0xFFF + b"\r\n0\r\n\r\n")  # which does not say how long it is
        assert connection.getresponse().status == 413
        connection.close()
        late = connected(address)
        late.putrequest("POST", "/v1/jobs")
        for name, value in {**AUTHORIZED, "Content-Length": "10"}.items():
            late.putheader(name, value)
        late.endheaders()
        assert late.getresponse().status == 408
        late.close()
        assert call(address, "/v1/status").status == 200


def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    failing = live_job("bad", command=(sys.executable, "-c", "raise SystemExit(3)"), restarts=1)
    jobs = [noting("a", tmp_path), failing, noting("runs", tmp_path, 100.0, gpus=2)]
    with running(tmp_path, jobs, until_idle=False) as cluster:
        cluster.until(lambda s: [job.state for job in s.jobs] == ["finished", "failed", "running"])
        cluster.ask(Submit((noting("waits", tmp_path, gpus=4, memory_bytes=10.0),)))
        cluster.ask(Drain("node1"))
        cluster.until(lambda s: s.jobs[-1].state == "queued")
        answer = call(cluster.manager.address, "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.body)}
    values = {
        (
            sample.name,
            *(value for name, value in sample.labels.items() if name in ("state", "node", "le")),
        ): sample.value
        for family in families.values()
        for sample in family.samples
    }
    states = ("queued", "running", "finished", "failed", "cancelled")
    assert [values["hocket_jobs", state] for state in states] == [1, 1, 1, 1, 0]
    assert sum(values["hocket_gpus", f"node{k}"] for k in range(2)) == 4
    assert sum(values["hocket_gpus_used", f"node{k}"] for k in range(2)) == 2
    assert (values["hocket_node_drained", "node0"], values["hocket_node_drained", "node1"]) == (0, 1)
    assert (values[("hocket_queue_jobs",)], values[("hocket_queue_gpus",)]) == (1, 4)
    assert values[("hocket_job_retries_total",)] == 1
    assert values[("hocket_job_completion_seconds_count",)] == 1
    assert values["hocket_job_completion_seconds_bucket", "+Inf"] == 1
    assert 0 < values[("hocket_job_completion_seconds_sum",)] < LIMIT_S
    assert values[("hocket_job_wait_seconds_count",)] == 3
    assert all(family.documentation and family.type != "unknown" for family in families.values())


def test_gpus_in_metrics_are_told_apart_by_type_where_they_have_one(tmp_path: Path) -> None:
    nodes = local_nodes(tmp_path, 2)
    for node in nodes:
        node.have_devices({"0": "a100", "1": "a100", "2": "v100"})
    for place, node in enumerate(nodes):
        node.machine, node.slots = f"machine {place}", 3 - place
    first = live_job("first", 3, command=("sleep", "1000"), memory_bytes=10.0, speeds={"a100": 1.0})
    with running(tmp_path, [first], nodes=nodes, gpus=3, until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        text = call(cluster.manager.address, "/metrics").body
    values = {
        (sample.name, sample.labels["node"], sample.labels["gpu_type"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("hocket_gpus")
    }
    counts = {("node0", "a100"): 2, ("node0", "v100"): 1, ("node1", "a100"): 2}
    found = {key[1:]: value for key, value in values.items() if key[0] == "hocket_gpus_used"}
    assert {key[1:]: value for key, value in values.items() if key[0] == "hocket_gpus"} == counts
    assert sum(found.values()) == 3
    assert (found.keys(), found["node0", "v100"]) == (counts.keys(), 0)


def test_the_next_manager_has_the_same_certificate_and_token(tmp_path: Path) -> None:
    credentials = kept_credentials(tmp_path)
    context = pinned((tmp_path / "certificate.pem").read_bytes())
    token = (tmp_path / "token").read_text()
    seen = set()
    for _ in range(2):
        with running(tmp_path, until_idle=False, credentials=kept_credentials(tmp_path)) as cluster:
            connection = connected(cluster.manager.address)
            connection._context = context  # type: ignore[attr-defined]
            connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {token}"})
            assert connection.sock is not None
            seen.add((cluster.manager.address, connection.sock.getpeercert(binary_form=True)))  # type: ignore[attr-defined]
            assert connection.getresponse().status == 200
            connection.close()
    assert len(seen) == 1
    (tmp_path / "certificate.pem").write_text("damaged")
    assert kept_credentials(tmp_path).fingerprint == credentials.fingerprint
    assert "BEGIN CERTIFICATE" in (tmp_path / "certificate.pem").read_text()


MESSAGES = st.one_of(
    st.builds(Cancel, TEXT),
    st.builds(AskWhy, TEXT),
    st.builds(AskJob, TEXT),
    st.builds(Drain, TEXT, st.booleans()),
    st.builds(AskStatus, st.booleans()),
    st.builds(AskJobs, st.sampled_from([None, "queued", "failed"]), st.booleans()),
    st.builds(AskEvents, st.integers(0, 2**62), st.none() | TEXT),
    st.builds(
        AskLog, TEXT, st.integers(0, 9), st.none() | st.integers(1, 9), st.booleans(), st.integers(0, 2**62)
    ),
)


@given(message=MESSAGES)
def test_every_message_is_a_request_and_comes_back(message: FromClient) -> None:
    sent = call_of(message)
    operation = operations._OF_MESSAGE[type(message)]
    path, query = urlsplit(sent.target).path, urlsplit(sent.target).query
    named = dict(zip(operation.path.split("/"), path.split("/"), strict=True))
    in_path = {name[1:-1]: unquote(value) for name, value in named.items() if name.startswith("{")}
    assert sent.method == operation.method
    assert (
        message_of(operation, in_path, dict(parse_qsl(query, keep_blank_values=True)), sent.body or b"")
        == message
    )


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a b?c=d&e#f", "%2F", "é\u202e", '"'])
def test_jobs_of_any_name_are_found(cluster: Running, name: str) -> None:
    cluster.ask(Submit((live_job(name, arrival_s=1e6),)))
    (found,) = cluster.ask(AskJob(name)).jobs or ()
    assert found.id == name
    assert cluster.ask(Cancel(name)).notes == (f"{name}: cancelled",)
    with pytest.raises(HocketError, match="is unknown"):
        cluster.ask(AskWhy(f"{name}x"))


def test_a_connection_that_was_idle_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.api.application.IDLE_S", 0.2)
    with running(tmp_path, until_idle=False) as cluster:
        line = ManagerLine(Contact(address=cluster.manager.address, token=TOKEN))
        assert line.ask(AskStatus()).status is not None
        deadline = time.monotonic() + LIMIT_S
        while cluster.manager._server._serving:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert line.ask(AskStatus()).status is not None
        line.close()
    assert not [what for _, _, what in events(tmp_path) if "was refused" in what]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_finds_the_manager_by_the_file_that_is_left_for_it(cluster: Running, tmp_path: Path) -> None:
    folder = tmp_path / 'a "folder"'
    folder.mkdir()
    (folder / "certificate.pem").write_bytes(CREDENTIALS.served.certificate)
    contact = Contact(address=cluster.manager.address, token=CREDENTIALS.without_key.text)
    leave_contact(folder, contact)
    assert (folder / "curl.conf").stat().st_mode & 0o777 == 0o600
    command = ["curl", "-sS", "-K", folder / "curl.conf", "https://hocket/v1/jobs"]
    assert subprocess.run(command, capture_output=True, timeout=60).stdout == b'{"jobs":[]}\n'
    (folder / "certificate.pem").write_bytes(new_credentials().served.certificate)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (60, "")  # it says nothing to whoever has another certificate


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_alone_submits_follows_and_cancels_a_job_by_the_pages(cluster: Running, tmp_path: Path) -> None:
    """Paths are those of openapi.json, fields those that it requires, the rest is on the page of the API."""
    described = json.loads((ROOT / "docs" / "openapi.json").read_text())
    path_of = {
        operation["operationId"]: path
        for path, methods in described["paths"].items()
        for operation in methods.values()
    }
    page = (ROOT / "docs" / "http.md").read_text()
    (tmp_path / "certificate.pem").write_bytes(CREDENTIALS.served.certificate)
    token = CREDENTIALS.without_key.text
    leave_contact(tmp_path, Contact(address=cluster.manager.address, token=token))
    assert "`curl -K FOLDER/curl.conf https://hocket/v1/status`" in page

    def curl(operation: str, *more: str) -> str:
        assert path_of[operation].replace("{job}", "JOB") in page
        url = f"https://hocket{path_of[operation].format(job='curled')}"
        command = ["curl", "-sS", "--fail", "-K", tmp_path / "curl.conf", url, *more]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran
        return ran.stdout

    schemas = described["components"]["schemas"]
    job = {name: value for name, value in row("curled").items() if name in schemas["LiveJob"]["required"]}
    (tmp_path / "job.json").write_text(json.dumps(document({**job, "command": ["sh", "-c", SAYS]})))
    assert json.loads(curl("submit", "--data", f"@{tmp_path}/job.json")) == {"notes": ["curled: queued"]}
    cluster.until(lambda s: "begins" in curl("log"))
    with subprocess.Popen(
        ["curl", "-sSN", "-K", tmp_path / "curl.conf", "https://hocket/v1/jobs/curled/log/follow"],
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "event: log\n"
        assert '"begins\\n"' in follower.stdout.readline()
        assert json.loads(curl("cancel", "--data", "")) == {"notes": ["curled: cancelled"]}
        assert "event: end\ndata: {" in follower.stdout.read()
    assert json.loads(curl("job"))["jobs"][0]["state"] == "cancelled"
    assert "curled: was cancelled by a command" in curl("why")
    assert "hocket_jobs" in {family.name for family in text_string_to_metric_families(curl("metrics"))}


SAYS = "echo begins; sleep 100"
WITHOUT = """import sys
sys.modules["aiohttp"] = None
from hocket.cli.main import main
main()"""


def test_a_manager_without_aiohttp_says_what_to_install_and_commands_do_without(
    cluster: Running, tmp_path: Path
) -> None:
    def hocket(*arguments: str) -> subprocess.CompletedProcess[str]:
        told = {"HOCKET_CLUSTER": cluster.manager.address, "HOCKET_CLUSTER_TOKEN": TOKEN}
        command = [sys.executable, "-c", WITHOUT, "cluster", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, **told}, cwd=ROOT
        )

    asked = hocket("status", "--json")
    assert (asked.returncode, json.loads(asked.stdout)["jobs"]) == (0, [])
    state = str(tmp_path / "another")
    refused = hocket("serve", "--state", state, "--placement", "ls", "--policy", "srsf-1")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        "hocket: aiohttp is not installed; pip install '.[cluster]' in a clone of Hocket"
    )
