"""The page: its figures, its order, and that nothing a user named can leave its place."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest
from fake_runs import fake_entries, fake_row, fake_timeline
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.graph.timeline import Kind, Lane, Span, Timeline
from hocket.origin import Origin
from hocket.report.result_files import Entry
from hocket.report.step_page import render
from hocket.report.step_plot_data import TimelinePanel, contours, overlap_figure, timeline_figure
from hocket.text import TimeUnit


class Page(HTMLParser):
    """The parsed page: its tags, the table's cells, the text outside scripts, and the embedded data."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.cells, self.texts, self.data, self.attributes = [], [], [], "", []
        self.inside = []
        self.feed(html)
        self.data = json.loads(gzip.decompress(base64.b64decode(self.data)))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)
        self.inside.append((tag, dict(attrs)))
        if tag == "tr":
            self.cells.append([])
        elif tag == "td":
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attributes = self.inside[-1] if self.inside else ("", {})
        if tag == "script":
            if attributes.get("id") == "data":
                self.data += data
        elif tag != "style":
            self.texts.append(data)
            if tag == "td":
                self.cells[-1][-1] += data

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


def test_the_headline_says_who_won_and_by_how_much():
    rows = [
        fake_row("tac", iteration_s=0.4, throughput=320.0, bound_s=0.38),
        fake_row("fifo", iteration_s=0.5, throughput=256.0),
        fake_row("random", iteration_s=0.8, throughput=160.0),
    ]
    text = Page(render([Entry(row) for row in rows], title="My run")).text
    for phrase in (
        "My run",
        "inception_v3 · parameter servers · 4 workers · 1 server",
        "Best policy tac of 3 results",
        "Step time 400.0 ms 320.0 examples/s",
        "Above the bound 5.3% the bound is 380.0 ms",
        "Against fifo 1.25x fifo: 500.0 ms",
    ):
        assert phrase in text
    assert "worst" not in text.lower()


def test_several_setups_have_their_best_each_beside_its_own_usual_policy():
    rows = [
        fake_row("caramel", architecture="allreduce", servers=0, iteration_s=0.4, throughput=320.0),
        fake_row("ddp", architecture="allreduce", servers=0, iteration_s=0.5, throughput=256.0),
        fake_row("fifo", iteration_s=0.8, throughput=160.0),
        fake_row("tac", iteration_s=0.9, throughput=142.0),
    ]
    page = Page(render([Entry(row) for row in rows]))
    assert "inception_v3 · all-reduce and parameter servers · 4 workers · 1 server" in page.text
    assert "Best: all-reduce caramel 400.0 ms, 1.25x against ddp (500.0 ms)" in page.text
    assert "Best: parameter servers fifo 800.0 ms, the usual policy" in page.text
    assert [cells[3] for cells in page.cells[1:]] == ["-20.0", "0.0", "0.0", "12.5"]


def test_the_header_says_where_page_and_results_come_from(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr("sys.argv", ["/usr/bin/hocket", "report", "a b.json"])
    simulated = Origin(command="hocket simulate x", date="then", version="0.0", network="1 Gbit/s")
    page = Page(render([Entry(fake_row("a"), None, simulated), Entry(fake_row("b"))]))
    assert "· 1 Gbit/s hocket report 'a b.json' · 1970-01-01 00:00 UTC · Hocket" in page.text
    assert "hocket simulate x · then · Hocket 0.0 · 1 Gbit/s" in page.text
    others = [Entry(fake_row("c"), None, msgspec.structs.replace(simulated, network="1 Mbit/s"))]
    assert "2 networks" in Page(render([Entry(fake_row("a"), None, simulated), *others])).text


def test_rows_are_ranked_and_ties_keep_their_order():
    rows = [
        fake_row("slow", overlap=0.1),
        fake_row("x", iteration_s=0.3, throughput=400.0),
        fake_row("y", iteration_s=0.3, throughput=400.0),
    ]
    page = Page(render([Entry(row) for row in rows]))
    assert [cells[:2] for cells in page.cells[1:]] == [["1", "x"], ["2", "y"], ["3", "slow"]]
    assert "of 3 results, level with 1 other" in page.text


def test_what_results_share_has_no_column_and_gains_are_within_one_setup():
    rows = [
        fake_row("a", workers=8, throughput=900.0),
        fake_row("b", workers=8, throughput=800.0, iteration_s=0.5),
        fake_row("c", workers=1, throughput=90.0),
    ]
    text = Page(render([Entry(row) for row in rows])).text
    assert "Workers" in text
    assert "Servers" not in text
    assert "several numbers of workers" in text
    assert "Best: parameter servers, 8 workers a " in text
    assert "Best: parameter servers, 1 worker c " in text


def test_no_timeline_says_how_to_get_one():
    page = Page(render([Entry(fake_row())]))
    assert "No timeline was given" in page.text
    assert "--timeline" in page.text
    assert page.data["timelines"] is None


def test_collectives_with_lanes_of_their_own_are_called_by_their_names():
    lanes = tuple(Lane(process="p", name=name) for name in ("compute", "all-gathers", "reduce-scatters"))
    kinds: tuple[Kind, ...] = ("forward", "pull", "push")
    spans = tuple(Span(lane=i, name=kind, kind=kind, start_s=i, end_s=i + 1) for i, kind in enumerate(kinds))
    sharded = Timeline(title="t", lanes=lanes, spans=spans)
    figure = timeline_figure([TimelinePanel("", "fsdp", sharded)], TimeUnit("s", 1.0))
    assert figure is not None
    called = dict(zip(figure["kinds"], figure["labels"], strict=True))
    assert (called["pull"], called["push"], called["forward"]) == ("all-gather", "reduce-scatter", "forward")
    both = [TimelinePanel("", "fsdp", sharded), TimelinePanel("", "tac", fake_timeline(num_ops=20))]
    mixed = timeline_figure(both, TimeUnit("s", 1.0))
    assert mixed is not None
    assert mixed["labels"] == list(mixed["kinds"])  # one legend for a job with servers as well


def test_the_best_timeline_is_drawn_below_another():
    data = Page(render(fake_entries(num_ops=60))).data["timelines"]
    assert [panel["policy"] for panel in data["panels"]] == ["reverse", "search"]
    panel = data["panels"][0]
    timeline = fake_timeline(num_ops=60, order="random")
    assert len(panel["lane"]) == len(panel["start"]) == len(timeline.spans)
    for i in (0, 100, -1):
        span = timeline.spans[i]
        assert data["names"][panel["name"][i]] == span.name
        assert data["kinds"][panel["kind"][i]] == span.kind
        assert panel["start"][i] == pytest.approx(span.start_s * 1e3, abs=1e-5)
        assert panel["length"][i] == pytest.approx((span.end_s - span.start_s) * 1e3, abs=1e-5)


def test_a_single_timeline_is_drawn_with_its_place():
    entries = [
        Entry(fake_row(p, overlap=o), fake_timeline(num_ops=9) if p == "b" else None)
        for p, o in (("a", 0.9), ("b", 0.5), ("c", 0.1))
    ]
    (panel,) = Page(render(entries)).data["timelines"]["panels"]
    assert panel["caption"].startswith("b (2 of 3), mean ")


def test_lanes_of_one_process_lie_together():
    lanes = [Lane(process=p, name=n) for p, n in (("w0", "cpu"), ("w1", "cpu"), ("w0", "net"), ("w1", "net"))]
    spans = tuple(Span(i, str(i), "pull", float(i), i + 1.0) for i in range(4))
    (panel,) = Page(render([Entry(fake_row(), Timeline(title="", lanes=tuple(lanes), spans=spans))])).data[
        "timelines"
    ]["panels"]
    assert [(lane["process"], lane["name"]) for lane in panel["lanes"]] == [
        ("w0", "cpu"),
        ("w0", "net"),
        ("w1", "cpu"),
        ("w1", "net"),
    ]
    assert panel["lane"] == [0, 2, 1, 3]


def test_a_run_is_shown_from_its_first_span_on():
    spans = (Span(0, "x", "pull", 8.0, 8.25), Span(0, "y", "pull", 8.25, 8.5))
    timeline = Timeline(title="", lanes=(Lane(process="p", name="n"),), spans=spans)
    (panel,) = Page(render([Entry(fake_row(), timeline)])).data["timelines"]["panels"]
    assert (panel["start"], panel["length"], panel["end"]) == ([0.0, 250.0], [250.0, 250.0], 500.0)


def test_a_timeline_may_be_empty():
    (panel,) = Page(render([Entry(fake_row(), Timeline(title="", lanes=(), spans=()))])).data["timelines"][
        "panels"
    ]
    assert (panel["lanes"], panel["start"], panel["end"]) == ([], [], 0.0)


NASTY = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "{{ 7*7 }}{% x %}",
    "a'b\"c&amp;\u2028\x00",
    "%{x}",
    "[bold]x[/bold]",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_leave_their_place(name):
    plain = Page(render([Entry(fake_row("p"), timeline_named("n"))], title="t"))
    page = Page(
        render([Entry(fake_row(name, model=name, architecture=name), timeline_named(name))], title=name)
    )
    assert page.tags == plain.tags
    assert [key for key, _ in page.attributes] == [key for key, _ in plain.attributes]
    assert page.data["overlap"]["points"][0]["policy"] == name
    assert page.data["timelines"]["names"] == [name]
    if "\x00" not in name and "\u2028" not in name:
        assert page.cells[1][1] == name


def timeline_named(name):
    return Timeline(
        title=name, lanes=(Lane(process=name, name=name),), spans=(Span(0, name, "pull", 0.0, 1.0),)
    )


@given(name=st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=40)
def test_any_name_is_embedded_as_it_is(name):
    assert Page(render([Entry(fake_row(name), timeline_named(name))])).data["timelines"]["names"] == [name]


def test_nothing_is_fetched():
    html = render(fake_entries(num_ops=30))
    assert "default-src 'none'" in html
    fetching = {"src", "srcset", "action", "poster", "data"}
    page = Page(html)
    assert not fetching & {key for key, _ in page.attributes}
    assert [value for key, value in page.attributes if key == "href"] == ["data:,"]


@pytest.mark.parametrize(("compute_s", "communication_s"), [(0.3, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_undefined_figures_are_dashes(compute_s, communication_s):
    row = fake_row(compute_s=compute_s, communication_s=communication_s, bound_s=0.0, iterations_s=())
    page = Page(render([Entry(row)]))
    assert page.cells[1].count("–") == 2
    assert page.data["overlap"]["points"][0]["cloud"] == []


sizes = st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 1e9, 1e308])


@given(values=st.lists(sizes, min_size=12, max_size=12), steps=st.lists(sizes, max_size=3))
@settings(max_examples=60)
def test_any_finite_row_renders(values, steps):
    keys = (
        "iteration_s",
        "iteration_p95_s",
        "straggler_fraction",
        "compute_s",
        "communication_s",
        "rho",
        "overlap",
        "utilization",
        "bound_s",
        "throughput",
        "events",
        "wall_s",
    )
    row = msgspec.structs.replace(
        fake_row(), **dict(zip(keys, values, strict=True)), iterations_s=tuple(steps)
    )
    Page(render([Entry(row), Entry(fake_row())]))


def test_a_report_needs_a_result():
    with pytest.raises(HocketError, match="at least one result"):
        render([])


def test_contours_satisfy_the_formula():
    found = contours(2.5, -0.5)
    assert {0.4, 0.99} <= {contour.utilization for contour in found}
    for contour in found:
        rho, overlap = np.array(contour.rho), np.array(contour.overlap)
        assert 1.0 / (1.0 + rho - overlap * np.minimum(rho, 1.0)) == pytest.approx(
            contour.utilization, rel=1e-3
        )
        assert rho.max() <= 2.5


def test_points_lie_on_the_contour_of_their_utilization():
    row = fake_row(overlap=0.7)
    point = overlap_figure([Entry(row)])["points"][0]
    rho, overlap = point["rho"], point["overlap"]
    assert 1.0 / (1.0 + rho - overlap * min(rho, 1.0)) == pytest.approx(row.utilization)
    assert np.mean(point["cloud"]) == pytest.approx(overlap, abs=1e-4)


def test_long_runs_have_thinned_clouds():
    cloud = overlap_figure([Entry(fake_row(steps=5000))])["points"][0]["cloud"]
    assert 200 <= len(cloud) <= 400
