"""``hocket cluster``: job sets made, simulated and compared; one JSON document, or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.network.file import network_document
from hocket.report.result_files import ClusterEntry, load_results
from tests.unit.cli.test_commands import Ran, hocket, in_tmp, refused
from tests.unit.network.test_measured import some_file

__all__ = ["in_tmp"]

KEYS = {
    *("placement", "policy", "jobs", "average_jct_s", "median_jct_s", "p95_jct_s", "gpu_utilization"),
    *("makespan_s", "events", "wall_s"),
}
JOB_KEYS = {"id", "arrival_s", "start_s", "finish_s", "jct_s", "gpus"}
SETTING = ("--placement", "lwf-1", "--policy", "srsf-1")
SMALL = ("--servers", "2", "--gpus-per-server", "2")


def job(name: str, gpus: int, arrival_s: float = 0.0, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        **{"id": name, "model": "m", "gpus": gpus, "iterations": 10, "arrival_s": arrival_s},
        **{"forward_s": 1.0, "backward_s": 2.0, "size_bytes": 1e9, "memory_bytes": 9e9},
    }
    return Job(**fields | changes)


@pytest.fixture
def jobs(in_tmp: Path) -> str:
    write_jobs(JobSet(jobs=(job("alone", 1), job("wide", 4, 5.0), job("pair", 2, 6.0))), "jobs.json")
    return "jobs.json"


def simulate(jobs: str, *arguments: str) -> Ran:
    return hocket("cluster", "simulate", jobs, *SETTING, *SMALL, *arguments)


def test_simulate_prints_one_document_with_the_documented_keys(jobs: str) -> None:
    ran = simulate(jobs, "--json")
    assert (ran.status, ran.err) == (0, "")
    row = json.loads(ran.out)
    assert set(row) >= KEYS
    assert (row["placement"], row["policy"], row["servers"]) == ("lwf-1", "srsf-1", 2)
    assert [each["id"] for each in row["jobs"]] == ["alone", "wide", "pair"]
    for each in row["jobs"]:
        assert set(each) >= JOB_KEYS
        assert each["arrival_s"] <= each["start_s"] < each["finish_s"]
        assert each["jct_s"] == pytest.approx(each["finish_s"] - each["arrival_s"])
    alone, wide, pair = row["jobs"]
    # Ten iterations of three seconds, from the start on the one GPU that it has for itself.
    assert alone["gpus"] == [[0, 0]]
    assert alone["finish_s"] == pytest.approx(30.0)
    # The wide job needs 9 GB on each GPU, of which the first is taken until then.
    assert wide["start_s"] >= 30.0
    assert sorted(wide["gpus"]) == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert row["average_jct_s"] == pytest.approx(sum(each["jct_s"] for each in row["jobs"]) / 3)
    assert row["makespan_s"] == pytest.approx(max(each["finish_s"] for each in row["jobs"]))
    # One GPU, four and two compute for thirty seconds each.
    assert row["gpu_utilization"] == pytest.approx(7 * 30 / (4 * row["makespan_s"]))
    assert pair["start_s"] == 6.0


def test_servers_that_are_down_are_in_the_row(jobs: str) -> None:
    maintenance = "0:10s-1m,1:0-20s"
    ran = simulate(jobs, "--maintenance", maintenance, "--checkpoint-every", "6s", "--json")
    row = json.loads(ran.out)
    outages, windows = row["outages"], [[0, 10.0, 60.0], [1, 0.0, 20.0]]
    assert (outages["maintenance"], outages["checkpoint_every_s"]) == (windows, 6.0)
    assert (outages["mtbf_s"], outages["went_down"]) == (None, 2)
    assert outages["interruptions"] == sum(each["interruptions"] for each in row["jobs"]) > 0
    gpus = {"alone": 1, "wide": 4, "pair": 2}
    lost = sum(each["lost_s"] * gpus[each["id"]] for each in row["jobs"])
    assert outages["lost_gpu_hours"] == pytest.approx(lost / 3600)
    for each in row["jobs"]:
        parts = ("queueing", "computing", "gpu_wait", "transferring", "network_wait", "lost")
        assert sum(each[f"{part}_s"] for part in parts) == pytest.approx(each["jct_s"])
    Path("windows").write_text("# server, from and to\n0:10s-1m\n\n1:0-20s  # the other\n")
    again = json.loads(simulate(jobs, "--maintenance", "windows", "--checkpoint-every", "6s", "--json").out)
    assert again["jobs"] == row["jobs"]
    row = json.loads(simulate(jobs, "--mtbf", "1h", "--json").out)
    assert (row["assumed"]["repair"], row["assumed"]["checkpoint_every"]) == ("4h", "30min")
    shown = simulate(jobs, "--mtbf", "1h").out
    assert "checkpoints after 30min of computing, at no cost (default)" in shown
    assert "Lost" in shown
    assert json.loads(simulate(jobs, "--json").out)["outages"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repair", "4h"), "--repair 4h is of servers that fail; give --mtbf, too"),
        (("--checkpoint-every", "4h"), "--checkpoint-every 4h counts where servers go down"),
        (("--mtbf", "30"), "--mtbf '30' is not a time with one of the units"),
        (("--maintenance", "absent.txt"), "'absent.txt' is neither a server with its time, as 3:10h-14h"),
        (("--maintenance", "0:1h-2"), "to '2' is not a time with one of the units"),
        (("--maintenance", "2:1h-2h"), "maintenance of server 2: the cluster has 2 servers, 0 to 1"),
        (("--maintenance", "0:2h-1h"), "maintenance from 7200 s to 3600 s"),
    ],
)
def test_outages_that_make_no_sense_are_refused(jobs: str, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(simulate(jobs, *arguments))


def test_starvation_and_exclusive_gpus_are_in_the_setting(jobs: str) -> None:
    row = json.loads(simulate(jobs, "--starvation", "10m", "--exclusive", "--json").out)
    assert (row["setting"]["starvation_s"], row["setting"]["jobs_per_gpu"]) == (600.0, 1)
    assert row["jobs"][1]["start_s"] >= row["jobs"][0]["finish_s"], "they share no GPU"
    told = simulate(jobs, "--starvation", "10m", "--exclusive").out
    assert "starvation 10m (given), exclusive (given)" in " ".join(told.split())
    plain = json.loads(simulate(jobs, "--json").out)
    assert (plain["setting"]["starvation_s"], plain["setting"]["jobs_per_gpu"]) == (None, None)
    assert "--starvation '10' is not a time" in refused(simulate(jobs, "--starvation", "10"))
    assert "give one of them" in refused(simulate(jobs, "--exclusive", "--jobs-per-gpu", "2"))
    assert "0 jobs on a GPU" in refused(simulate(jobs, "--jobs-per-gpu", "0"))


def test_quotas_and_shares_are_of_users_that_jobs_have(jobs: str) -> None:
    document = json.loads(Path(jobs).read_text())
    for job, user in zip(document["jobs"], ("alice", "bob", "alice"), strict=True):
        job["user"] = user
    Path("users.json").write_text(json.dumps(document))
    row = json.loads(simulate("users.json", "--quota", "alice=2,*=4", "--json").out)
    assert row["setting"]["quotas"] == [["alice", 2], ["*", 4]]
    assert [job["user"] for job in row["jobs"]] == ["alice", "bob", "alice"]
    alone, _, pair = row["jobs"]
    assert pair["start_s"] >= alone["finish_s"] > 6.0, "Alice may hold two GPUs"
    told = simulate("users.json", "--quota", "alice=2").out
    assert "quota alice=2 (given)" in " ".join(told.split())
    Path("row.json").write_text(json.dumps(row))
    assert hocket("report", "row.json", "-o", "page.html").status == 0
    assert "quotas alice=2,*=4" in Path("page.html").read_text()
    assert "'bob' is no name and whole number" in refused(simulate("users.json", "--quota", "bob"))
    assert "'alcie'" in refused(simulate("users.json", "--quota", "alcie=2"))
    assert "job 'wide' needs 4 GPUs and bob's quota is 3" in refused(simulate("users.json", "--quota", "*=3"))
    assert "alice is named twice" in refused(simulate("users.json", "--quota", "alice=3,alice=4"))
    assert "take policy fair-share" in refused(simulate("users.json", "--shares", "alice=2"))
    compared = ("sweep", "users.json", "--policies", "srsf-1,fair-share", *SMALL, "--shares", "alice=2")
    swept = json.loads(hocket("cluster", *compared, "--json").out)
    assert swept["setting"]["shares"] == [["alice", 2]]
    half = ("--half-life", "7d")
    assert "does not count it; take policy fair-share" in refused(simulate("users.json", *half))
    swept = json.loads(hocket("cluster", *compared, *half, "--json").out)
    assert swept["setting"]["half_life_s"] == 7 * 86400.0
    assert "half life 7d (given)" in " ".join(hocket("cluster", *compared, *half).out.split())
    assert [row["policy"] for row in swept["rows"]] == ["srsf-1", "fair-share"]


def test_types_of_gpus_are_servers_in_the_setting_and_what_is_assumed_is_said(jobs: str) -> None:
    types = ("--gpu-types", "A100:2:80GB,v100:1", "--servers", "3")
    row = json.loads(simulate(jobs, *types, "--json").out)
    assert [(each["name"], each["num_gpus"]) for each in row["setting"]["gpu_types"]] == [
        ("a100", 4),
        ("v100", 2),
    ]
    assert row["servers"] == 3
    assert row["assumed"]["speeds"].startswith("3 of 3 jobs without speeds on types of GPUs")
    told = simulate(jobs, *types)
    assert "gpu types A100:2:80GB,v100:1 (given)" in " ".join(told.out.split())
    assert "3 of 3 jobs without speeds" in told.err
    assert "speeds" not in json.loads(simulate(jobs, "--json").out)["assumed"]
    assert "leave --servers out" in refused(simulate(jobs, "--gpu-types", "a100:3", "--servers", "2"))
    told = simulate(jobs, *types, "--wait-for-faster").out
    assert "wait for faster (given)" in " ".join(told.split())
    waits = json.loads(simulate(jobs, *types, "--wait-for-faster", "--json").out)
    assert (waits["setting"]["wait_for_faster"], row["setting"]["wait_for_faster"]) == (True, False)
    assert "the cluster has one type" in refused(simulate(jobs, "--wait-for-faster"))
    assert "'a100' is no type with its servers" in refused(simulate(jobs, "--gpu-types", "a100"))
    assert "type of GPUs 'a 1': a type is named" in refused(simulate(jobs, "--gpu-types", "a 1:2"))


def test_jobs_with_a_range_are_resized_where_that_is_asked_for(in_tmp: Path) -> None:
    ranging = job("range", 4, 1.0, iterations=100, gpus_min=1, checkpoint_s=1.0, size_bytes=0.0)
    write_jobs(JobSet(jobs=(job("first", 3, size_bytes=0.0), ranging)), "range.json")
    rows = [
        json.loads(simulate("range.json", "--exclusive", *more, "--json").out) for more in ((), ("--resize",))
    ]
    assert [len(row["jobs"][1]["gpus"]) for row in rows] == [1, 4]
    assert [row["jobs"][1]["grown"] for row in rows] == [None, 1]
    assert (rows[1]["preemption"]["shrunk"], rows[1]["preemption"]["grown"]) == (0, 1)
    assert [row["setting"]["checkpoint_s"] for row in rows] == [None, 30.0]
    told = " ".join(simulate("range.json", "--exclusive", "--resize").out.split())
    assert "resize (given)" in told
    assert "Grown" in told
    quick = job("quick", 2, 0.0, iterations=2, gpus_min=1, forward_s=0.01, backward_s=0.01, size_bytes=0.0)
    write_jobs(JobSet(jobs=(quick,)), "quick.json")
    live = hocket("cluster", "run", "quick.json", *SETTING, "--gpus-per-server", "2", "--resize", "--json")
    row = json.loads(live.out)
    assert row["setting"]["resize"]
    assert (row["preemption"]["shrunk"], row["preemption"]["grown"]) == (0, 0)


def test_people_get_a_table(jobs: str) -> None:
    ran = simulate(jobs)
    assert ran.status == 0
    assert "lwf-1" in ran.out
    assert "Makespan" in ran.out
    assert "Net wait" in ran.out


def test_a_timeline_and_results_make_a_page(jobs: str, in_tmp: Path) -> None:
    assert simulate(jobs, "--timeline", "run.json").status == 0
    Path("row.json").write_text(simulate(jobs, "--json").out)
    ran = hocket("report", "run.json", "row.json", "-o", "page.html")
    assert ran.status == 0, ran.err
    page = (in_tmp / "page.html").read_text()
    assert "GPUs and links at work" in page
    assert "lwf-1 / srsf-1" in page
    document = json.loads((in_tmp / "run.json").read_text())
    names = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    assert names == {"server 0", "server 1"}
    assert {event["cat"] for event in document["traceEvents"] if event["ph"] == "X"} >= {"forward", "reduce"}


def test_a_timeline_is_exported_with_its_row(jobs: str, in_tmp: Path) -> None:
    assert simulate(jobs, "--timeline", "run.json").status == 0
    ran = hocket("export", "perfetto", "run.json", "-o", "again.json.gz")
    assert ran.status == 0, ran.err
    (expected,), (found,) = load_results(["run.json"]), load_results(["again.json.gz"])
    assert found == expected
    assert isinstance(found, ClusterEntry)
    assert found.timeline is not None
    spoiled = json.loads((in_tmp / "run.json").read_text())
    spoiled["cluster"]["jobs"][0]["start_s"] = -1.0
    Path("spoiled.json").write_text(json.dumps(spoiled))
    line = refused(hocket("export", "perfetto", "spoiled.json", "-o", "never.json"))
    assert "spoiled.json: cluster.jobs[0].start_s: -1.0 is negative" in line
    assert not Path("never.json").exists()


def test_a_timeline_can_begin_later(jobs: str, in_tmp: Path) -> None:
    assert simulate(jobs, "--timeline", "run.json", "--timeline-from", "40s").status == 0
    events = json.loads((in_tmp / "run.json").read_text())["traceEvents"]
    assert min(event["args"]["start_s"] for event in events if event["ph"] == "X") >= 40.0


def test_a_measured_network_takes_the_papers_place(jobs: str, in_tmp: Path) -> None:
    slower = network_document(some_file())
    slower["allreduce"]["b_s_per_byte"] *= 2
    Path("network.json").write_text(json.dumps(slower))
    measured = json.loads(simulate(jobs, "--network", "network.json", "--json").out)
    assert measured["average_jct_s"] > json.loads(simulate(jobs, "--json").out)["average_jct_s"]
    Path("bare.json").write_text('{"format": "hocket.network/1", "bandwidth_bps": 1e9}')
    assert "bare.json: has no all-reduce" in refused(simulate(jobs, "--network", "bare.json"))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--placement", "best", "--policy", "fifo"), "'best' is unknown"),
        (("--placement", "ff", "--policy", "srsf"), "choose one of: srsf-N, ada-srsf"),
        (("--placement", "ff", "--policy", "fifo", "--servers", "0"), "0 servers"),
        (("--placement", "ff", "--policy", "fifo", "--memory", "8GB"), "alone"),
        (("--placement", "ff", "--policy", "fifo", "--servers", "1"), "wide"),
        (
            ("--placement", "ff", "--policy", "fifo", "--chunk", "1s"),
            "size '1s' has the unit of something else",
        ),
        (("--placement", "ff", "--policy", "fifo", "--timeline", "jobs.json"), "is also an input"),
        (("--placement", "ff", "--policy", "fifo", "--timeline-from", "5s"), "give --timeline FILE"),
        (
            ("--placement", "ff", "--policy", "fifo", "--sharing", "max-min", "--oversubscription", "2"),
            "oversubscription 2.0 of one rack",
        ),
        (("--placement", "ff"), "--policy"),
    ],
)
def test_requests_that_cannot_be_served(arguments: tuple[str, ...], rule: str, jobs: str) -> None:
    assert rule in refused(hocket("cluster", "simulate", jobs, *SMALL, *arguments))


def test_generate_writes_or_prints_the_same_job_set(in_tmp: Path) -> None:
    assert hocket("cluster", "generate", "paper", "--seed", "4", "-o", "jobs.json") == (0, "", "")
    written = json.loads((in_tmp / "jobs.json").read_text())
    assert written == json.loads(hocket("cluster", "generate", "paper", "--seed", "4").out)
    assert len(written["jobs"]) == 160
    wide = hocket("cluster", "generate", "paper", "--sizes", "wide", "--jobs", "5", "--period", "7s")
    few = json.loads(wide.out)["jobs"]
    assert len(few) == 5
    assert max(each["arrival_s"] for each in few) <= 7
    assert "workload 'pape' is unknown; did you mean 'paper'?" in refused(
        hocket("cluster", "generate", "pape")
    )
    assert "is not in whole seconds" in refused(hocket("cluster", "generate", "paper", "--period", "1.5s"))


def test_import_says_what_it_assumed_beside_the_file(in_tmp: Path) -> None:
    Path("trace.csv").write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,3,100,vgg16,20,1\n"
    )
    ran = hocket("cluster", "import", "tiresias", "trace.csv", "-o", "jobs.json")
    assert (ran.status, ran.out) == (0, "")
    assert all(line.startswith("tiresias: ") for line in ran.err.splitlines())
    assert "one GPU" in ran.err
    (row,) = json.loads((in_tmp / "jobs.json").read_text())["jobs"]
    assert (row["id"], row["arrival_s"]) == ("0", 0.0)
    assert "also an input" in refused(hocket("cluster", "import", "tiresias", "trace.csv", "-o", "trace.csv"))
    assert "choose one of: tiresias, gavel" in refused(hocket("cluster", "import", "pbs", "trace.csv"))
    Path("trace.csv").write_text("job_id\n")
    assert refused(hocket("cluster", "import", "helios", "trace.csv")).startswith("hocket: trace.csv: line 1")


def test_job_sets_are_csv_where_their_names_say_so(in_tmp: Path) -> None:
    assert hocket("cluster", "generate", "paper", "--jobs", "8", "-o", "jobs.csv").status == 0
    ran = hocket("cluster", "import", "jobs", "jobs.csv", "-o", "jobs.json")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    assert hocket("cluster", "import", "jobs", "jobs.json", "-o", "again.csv").status == 0
    assert read_jobs("again.csv") == read_jobs("jobs.json") == read_jobs("jobs.csv")
    assert len(Path("jobs.csv").read_text().splitlines()) == 9
    scheduling = ("--placement", "lwf-1", "--policy", "srsf-1", "--json")
    rows = [json.loads(hocket("cluster", "simulate", f"jobs.{e}", *scheduling).out) for e in ("csv", "json")]
    assert rows[0]["jobs"] == rows[1]["jobs"]
    ran = hocket("cluster", "import", "jobs", "jobs.csv", "--jobs", "3")
    first = [job["arrival_s"] for job in json.loads(ran.out)["jobs"]]
    assert first == sorted(job["arrival_s"] for job in json.loads(Path("jobs.json").read_text())["jobs"])[:3]


def test_sweep_compares_policies_on_the_same_job_sets(in_tmp: Path) -> None:
    ran = hocket(
        *("cluster", "sweep", "--workload", "paper", "--seeds", "3", "--jobs", "8", "--period", "20s"),
        *("--placements", "lwf-1,ff", "--policies", "srsf-1,psrsf", "--servers", "8", "--json"),
    )
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found["job_sets"] == 3
    assert (found["servers"], found["gpus_per_server"], found["overlapping"]) == (8, 4, 0)
    assert found["setting"]["gpu_memory_bytes"] == 16e9
    assert found["setting"]["chunk_bytes"] == 4e6
    settings = [(row["placement"], row["policy"]) for row in found["rows"]]
    assert settings == [("lwf-1", "srsf-1"), ("lwf-1", "psrsf"), ("ff", "srsf-1"), ("ff", "psrsf")]
    assert len(found["pairs"]) == 6
    first = found["rows"][0]
    assert [run["seed"] for run in first["runs"]] == [0, 1, 2]
    averages = [run["average_jct_s"] for run in first["runs"]]
    assert first["average_jct_s"]["mean"] == pytest.approx(sum(averages) / 3)
    assert len({run["job_set"] for run in first["runs"]}) == 3
    # One of the runs again, by itself.
    hocket(
        *("cluster", "generate", "paper", "--seed", "1", "--jobs", "8", "--period", "20s", "-o", "one.json")
    )
    alone = hocket("cluster", "simulate", "one.json", *SETTING, "--servers", "8", "--seed", "1", "--json")
    assert json.loads(alone.out)["average_jct_s"] == averages[1]


def test_transfers_of_generated_jobs_overlap(in_tmp: Path) -> None:
    few = ("--jobs", "8", "--period", "20s")
    assert hocket("cluster", "generate", "paper", *few, "--overlap", "-o", "jobs.json").status == 0
    ran = hocket("cluster", "simulate", "jobs.json", *SETTING, "--servers", "8", "--json")
    row = json.loads(ran.out)
    assert row["overlapping"] == 8
    assert row["setting"]["sharing"] == "equation5"
    sweep = ("cluster", "sweep", "--workload", "paper", *few, "--policies", "srsf-1", "--servers", "8")
    found = [json.loads(hocket(*sweep, "--json", "--seeds", "1", *more).out) for more in ((), ("--overlap",))]
    assert found[1]["overlapping"] == 8
    assert found[1]["rows"][0]["average_jct_s"]["mean"] == row["average_jct_s"]
    assert row["average_jct_s"] < found[0]["rows"][0]["average_jct_s"]["mean"]


def test_a_sweep_has_the_same_outages_for_each_setting_of_one_seed(in_tmp: Path) -> None:
    few = ("--jobs", "8", "--period", "20s")
    down = ("--mtbf", "1h", "--maintenance", "1:1min-3min", "--checkpoint-every", "1min", "--servers", "8")
    sweep = ("cluster", "sweep", "--workload", "paper", *few, "--policies", "srsf-1,fifo", *down)
    found = json.loads(hocket(*sweep, "--seeds", "2", "--json").out)
    assert found["outages"] == {
        "mtbf_s": 3600.0,
        "repair_s": 14400.0,
        "checkpoint_every_s": 60.0,
        "maintenance": [[1, 60.0, 180.0]],
    }
    assert found["assumed"]["repair"] == "4h"
    for seed in range(2):
        hocket("cluster", "generate", "paper", "--seed", f"{seed}", *few, "-o", "one.json")
        for row in found["rows"]:
            setting = ("--placement", row["placement"], "--policy", row["policy"], "--seed", f"{seed}")
            alone = json.loads(hocket("cluster", "simulate", "one.json", *setting, *down, "--json").out)
            run = row["runs"][seed]
            assert run["average_jct_s"] == alone["average_jct_s"]
            keys = ("went_down", "interruptions", "lost_gpu_hours")
            assert [run[key] for key in keys] == [alone["outages"][key] for key in keys]
            assert run["interruptions"] > 0
    lost = [run["lost_gpu_hours"] for run in found["rows"][0]["runs"]]
    assert found["rows"][0]["lost_gpu_hours"]["mean"] == pytest.approx(sum(lost) / 2)
    assert lost[0] != lost[1]
    told = hocket(*sweep, "--seeds", "2").out
    assert "repair 4h (default)" in " ".join(told.split())
    assert "GPU h" in told
    plain = json.loads(hocket(*sweep[:8], "--servers", "8", "--seeds", "1", "--json").out)
    assert (plain["outages"], plain["rows"][0]["interruptions"]) == (None, None)


def test_sweep_over_files_prints_tables_for_people(jobs: str) -> None:
    ran = hocket("cluster", "sweep", jobs, *SMALL, "--policies", "srsf-1,fifo")
    assert ran.status == 0
    assert "Makespan" in ran.out
    assert "Faster on" in ran.out
    assert "against lwf-1 / srsf-1, job set by job set" in ran.err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "either JOBS files or --workload paper"),
        (("jobs.json", "--workload", "paper"), "either JOBS files or --workload paper"),
        (("--workload", "philly"), "workload 'philly' is unknown"),
        (("--workload", "paper", "--seeds", "0"), "0 seeds are no job set"),
        (("jobs.json", "--policies", "srsf-1,srsf-1"), "named twice"),
        (("jobs.json", "--policies", "srsf-1,nobody"), "'nobody' is unknown"),
        (("jobs.json", "--servers", "1", "--gpus-per-server", "2"), "wide"),
        (("absent.json",), "No such file or directory; hocket cluster generate and import write job sets"),
        (("jobs.json", "--seeds", "3", "--overlap"), "--seeds, --overlap: JOBS files say so themselves"),
        (("jobs.json", "--sizes", "paper"), "--sizes: JOBS files say so themselves"),
        (("jobs.json", "--repair", "4h"), "--repair 4h is of servers that fail; give --mtbf, too"),
        (("jobs.json", "--maintenance", "16:1h-2h"), "the cluster has 16 servers, 0 to 15"),
    ],
)
def test_sweeps_that_cannot_be_served(arguments: tuple[str, ...], rule: str, jobs: str) -> None:
    assert rule in refused(hocket("cluster", "sweep", *arguments))
