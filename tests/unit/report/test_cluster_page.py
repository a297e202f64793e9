"""The page of a shared cluster: what it says and draws, what it reads, and that it fetches nothing."""

import json
from itertools import pairwise

import msgspec
import pytest
from fake_clusters import fake_cluster
from fake_runs import fake_row, fake_timeline
from test_step_page import NASTY, Page

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.results.run_statistics import setting_of
from hocket.errors import FormatError, HocketError
from hocket.interop import timeline_document
from hocket.report.cluster_page import render_cluster
from hocket.report.cluster_plot_data import Residence, residence_figure
from hocket.report.cluster_table import cluster_columns
from hocket.report.pages import render_results
from hocket.report.result_files import ClusterEntry, load_results
from hocket.text import TimeUnit

SECONDS = TimeUnit("s", 1.0)


def page(*rows, **options):
    return Page(render_cluster([ClusterEntry(row) for row in rows], **options))


def write(path, document):
    path.write_bytes(msgspec.json.encode(document))
    return path


def test_it_opens_with_the_lowest_average():
    slow, fast = fake_cluster("srsf-1", slower=3.0), fake_cluster("psrsf")
    shown = page(slow, fast)
    assert "Lowest average psrsf placed by lwf-1" in shown.text
    assert f"Below the highest {1 - fast.average_jct_s / slow.average_jct_s:.1%} lwf-1 / srsf-1" in shown.text
    assert "40 jobs · 4 servers of 4 GPUs · jobs.json" in shown.text
    assert [cells[1] for cells in shown.cells[1:]] == ["psrsf", "srsf-1"]
    assert "Not all results are of the same jobs" not in shown.text


def test_results_that_are_level_are_not_told_apart():
    shown = page(fake_cluster("srsf-1"), fake_cluster("ada-srsf"))
    assert "placed by lwf-1, level with 1 other" in shown.text
    assert "Below the highest" not in shown.text


def test_curves_are_distributions_of_completion_times():
    row = fake_cluster(jobs=7)
    data = page(row).data
    (result,) = data["results"]
    assert result["name"] == "lwf-1 / psrsf"
    assert data["unit"]["symbol"] == "min"
    assert result["jct"] == pytest.approx(sorted(job.jct_s / 60 for job in row.jobs))
    assert result["share"] == pytest.approx([100 * k / 7 for k in range(1, 8)], abs=1e-3)
    assert result["parts"] == pytest.approx(
        [
            row.average_queueing_s / 60,
            row.average_computing_s / 60,
            row.average_gpu_wait_s / 60,
            row.average_transferring_s / 60,
            row.average_network_wait_s / 60,
        ]
    )
    assert data["parts"] == ["queueing", "computing", "gpu_wait", "transferring", "network_wait"]
    assert result["contention"]["bin"] == pytest.approx(20 / 60)


def test_very_many_jobs_are_drawn_by_fewer_points_with_the_same_ends():
    row = fake_cluster(jobs=5000)
    data = page(row).data
    (result,) = data["results"]
    assert len(result["jct"]) == 2000
    longest = max(job.jct_s for job in row.jobs) * data["unit"]["per_second"]
    assert result["jct"][-1] == pytest.approx(longest)
    assert result["share"][-1] == 100


def test_results_with_the_documented_keys_alone_have_a_page():
    full = msgspec.to_builtins(fake_cluster())
    keys = ("placement", "policy", "average_jct_s", "median_jct_s", "p95_jct_s", "gpu_utilization")
    document = {key: full[key] for key in (*keys, "makespan_s", "events", "wall_s")}
    job_keys = ("id", "arrival_s", "start_s", "finish_s", "jct_s", "gpus")
    document["jobs"] = [{key: job[key] for key in job_keys} for job in full["jobs"]]
    shown = page(msgspec.convert(document, type(fake_cluster())))
    assert shown.data["results"][0]["parts"] is None
    assert ("id", "parts") not in shown.attributes
    assert ("id", "contention") not in shown.attributes
    assert ("id", "jct") in shown.attributes


def test_gpus_are_drawn_with_jobs_that_share_one_in_lanes():
    first, second, third = fake_cluster(jobs=3).jobs
    jobs = (
        msgspec.structs.replace(first, id="a", arrival_s=5, start_s=10, finish_s=30, gpus=((1, 0), (1, 1))),
        msgspec.structs.replace(second, id="b", arrival_s=5, start_s=20, finish_s=40, gpus=((1, 0), (0, 3))),
        msgspec.structs.replace(third, id="c", arrival_s=5, start_s=30, finish_s=50, gpus=((1, 0),)),
    )
    row = fake_cluster(jobs=3)
    row = msgspec.structs.replace(row, jobs=jobs)
    (panel,) = residence_figure([Residence("caption", row)], SECONDS)["panels"]
    assert panel["lanes"] == [
        {"process": "server 0", "name": "GPU 3"},
        {"process": "server 1", "name": "GPU 0"},
        {"process": "server 1", "name": "shared, 2"},
        {"process": "server 1", "name": "GPU 1"},
    ]
    spans = sorted(zip(panel["lane"], panel["start"], panel["length"], panel["kind"], strict=True))
    assert spans == [(0, 15, 20, 1), (1, 5, 20, 0), (1, 25, 20, 0), (2, 15, 20, 1), (3, 5, 20, 0)]
    assert panel["end"] == 45


def test_a_page_says_what_runs_are_repeated_with():
    setting = setting_of(Cluster(num_servers=4, gpus_per_server=4), Scheduling(placement="ff", policy="fifo"))
    rows = [fake_cluster(policy, setting=setting, overlapping=7, seed=3) for policy in ("psrsf", "srpt")]
    said = page(*rows).text
    assert "16 GB a GPU, chunks of 4 MB, Eq. 5, a 0.000669 s, b 8.53e-10 s/B, eta 2.34e-10 s/B" in said
    assert "seed 3 · 7 jobs overlap" in said
    large = msgspec.structs.replace(rows[0], setting=msgspec.structs.replace(setting, chunk_bytes=32e6))
    several = page(rows[0], large)
    assert "several settings" in several.text
    assert [cells[2] for cells in several.cells[1:]] == ["4 MB", "32 MB"]


def test_of_very_many_jobs_the_first_ones_are_drawn():
    row = fake_cluster(jobs=30_000)
    (panel,) = residence_figure([Residence("psrsf", row)], SECONDS)["panels"]
    assert 19_000 < len(panel["start"]) <= 20_000
    assert panel["caption"].startswith("psrsf, the first ")


def test_spans_of_one_lane_never_overlap():
    (panel,) = residence_figure([Residence("caption", fake_cluster(jobs=300))], SECONDS)["panels"]
    by_lane = {}
    for lane, start, length in zip(panel["lane"], panel["start"], panel["length"], strict=True):
        by_lane.setdefault(lane, []).append((start, start + length))
    for spans in by_lane.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-4 for a, b in pairwise(spans))


def test_every_shape_of_result_file(tmp_path):
    row, other = fake_cluster(), fake_cluster("srsf-1", slower=2.0)
    timeline = fake_timeline(workers=1, num_ops=9, num_parameters=3)
    recorded = timeline_document(timeline) | {"cluster": msgspec.to_builtins(row)}
    paths = [
        write(tmp_path / "row.json", msgspec.structs.replace(row, wall_s=9.0, events=5, contention=None)),
        write(tmp_path / "both.json", [other, row]),
        write(tmp_path / "timeline.json", recorded),
    ]
    entries = load_results(paths)
    assert entries == [ClusterEntry(row, timeline), ClusterEntry(other)]
    shown = Page(render_results(entries))
    assert "GPUs and links at work" in shown.text
    assert [panel["policy"] for panel in shown.data["timelines"]["panels"]] == ["psrsf"]


def test_steps_and_clusters_do_not_mix(tmp_path):
    paths = [write(tmp_path / "a.json", fake_row()), write(tmp_path / "b.json", fake_cluster())]
    with pytest.raises(HocketError, match=r"b.json is of a cluster and .*a.json of a step: a page"):
        load_results(paths)


ROW = msgspec.to_builtins(fake_cluster(jobs=2))
JOB = ROW["jobs"][0]
MALFORMED = [
    (ROW | {"average_jct_s": "1"}, "average_jct_s: expected `float`"),
    (ROW | {"p95_jct_s": -1}, "p95_jct_s: -1.0 is negative"),
    (ROW | {"average_jct_s": float("nan")}, "average_jct_s: nan is not a finite number"),
    (ROW | {"jobs": []}, "jobs: is empty; a result has at least one job"),
    (ROW | {"jobs": [JOB | {"jct_s": -2}]}, "jobs[0].jct_s: -2.0 is negative (job 'j0')"),
    (ROW | {"jobs": [JOB | {"finish_s": 0}]}, "jobs[0].finish_s: 0.0 is not after start_s and arrival_s"),
    (ROW | {"jobs": [JOB | {"gpus": [[0]]}]}, "jobs[0].gpus[0]: expected `array` of length 2"),
    (ROW | {"jobs": [JOB | {"gpus": [[0, -1]]}]}, "jobs[0].gpus: has a negative number (job 'j0')"),
    ({"placement": "ff"}, "object missing required field"),
    ([ROW, ROW | {"policy": 5}], "[1]: policy: expected `str`"),
    ({"cluster": ROW}, "object missing required field `format`"),
    (
        {"format": "hocket.timeline/1", "title": "", "traceEvents": [], "cluster": 5},
        "cluster: expected `object`",
    ),
]


@pytest.mark.parametrize(("document", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_results_are_refused_in_one_line(tmp_path, document, message):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError) as refused:
        load_results([path])
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_different_jobs_are_said_to_be_different():
    one, other = fake_cluster(), fake_cluster(jobs=30, source="other.json")
    shown = page(one, other)
    assert "Not all results are of the same jobs" in shown.text
    assert {result["name"] for result in shown.data["results"]} == {
        "lwf-1 / psrsf, jobs.json",
        "lwf-1 / psrsf, other.json",
    }
    assert cluster_columns([one, other])[0].heading == "Jobs"


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_leave_their_place(name):
    plain = page(fake_cluster(jobs=3), title="t")
    job = msgspec.structs.replace(fake_cluster(jobs=1).jobs[0], id=name, model=name)
    rows = (job, *fake_cluster(jobs=3).jobs[1:])
    nasty = fake_cluster(name, placement=name, jobs=3, source=name)
    shown = page(msgspec.structs.replace(nasty, jobs=rows), title=name)
    assert shown.tags == plain.tags
    assert shown.data["results"][0]["name"] == f"{name} / {name}"


def test_nothing_is_fetched():
    html = render_cluster([ClusterEntry(fake_cluster())])
    assert "default-src 'none'" in html
    attributes = Page(html).attributes
    assert not {"src", "srcset", "action", "poster", "data"} & {key for key, _ in attributes}
    assert [value for key, value in attributes if key == "href"] == ["data:,"]


def test_a_page_needs_a_result():
    with pytest.raises(HocketError, match="at least one result"):
        render_cluster([])
