"""What every kind of page keeps to: any width, both colour schemes, a text for each figure, the keyboard."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_clusters import fake_cluster
from fake_predictions import fake_curve
from fake_runs import fake_entries, fake_timeline
from fake_trainings import fake_simulation, fake_training
from test_live_in_browser import job, state_of
from test_report_in_browser import errors, open_page, requested, wait_for_figures, wait_until

from hocket.bench.replay.accuracy import Accuracy
from hocket.bench.replay.accuracy_request import AccuracyRequest, Configuration
from hocket.bench.replay.accuracy_statistics import groups_of, row_of
from hocket.diagnosis import diagnose
from hocket.graph import load_step
from hocket.interop.kineto.kineto_step import step_of
from hocket.interop.kineto.traced_job import read_job
from hocket.network import Network
from hocket.network.file import NetworkFile
from hocket.offers import Offer, TrainingJob, rent
from hocket.report.accuracy_page import render_accuracy
from hocket.report.cluster_page import render_cluster
from hocket.report.comparison_page import render_comparison
from hocket.report.diagnosis_page import render_diagnosis
from hocket.report.live_page import render_live
from hocket.report.prediction_page import render_prediction
from hocket.report.result_files import ClusterEntry, TrainingEntry
from hocket.report.step_page import render
from hocket.report.training_page import render_training
from hocket.reproduce.papers_page import render as render_reproduction
from tests.served_page import page_served
from tests.unit.cli.test_commands import GOLDEN
from tests.unit.interop.kinds import Training, steps, usual
from tests.unit.reproduce.test_output import ABOUT, made

pytestmark = pytest.mark.slow

LONG = "transformer.encoder.layers.11.attention.output_projection.weight"


def a_step():
    entries = fake_entries(num_ops=60)
    long = msgspec.structs.replace(entries[0].row, policy="bytescheduler-with-a-long-name")
    return render([*entries, entries[0]._replace(row=long)])


def a_cluster():
    return render_cluster([ClusterEntry(fake_cluster(p, slower=s)) for p, s in (("psrsf", 1), ("srsf-1", 2))])


def a_recorded_cluster():
    return render_cluster([ClusterEntry(fake_cluster(), fake_timeline(workers=2, num_ops=40))])


def a_prediction():
    rows = [*fake_curve(), *fake_curve(2)]
    return render_prediction([msgspec.structs.replace(row, cost_per_example=1e-6) for row in rows])


def a_rental():
    step = load_step(GOLDEN / "branches.step.json")
    common = {"device": "toy", "gpus": 2, "most_nodes": 4, "intra_bps": 1e9, "currency": "USD"}
    offers = [
        Offer(name="fast-nodes-with-a-long-name", price_per_hour=10, bandwidth_bps=1e9, **common),
        Offer(name="slow", price_per_hour=3, bandwidth_bps=500.0, **common),
        Offer(name="other", device="l4", gpus=1, price_per_hour=1, most_nodes=1, currency="USD"),
    ]
    job = TrainingJob(examples=1e6, deadline_s=3e6, budget=3e4)
    return rent(replace(step, expected_error=0.2, caveat="not measured"), offers, job).plot().html


def a_diagnosis():
    network = Network(num_workers=2, bandwidth_bps=1e8, startup_s=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for rank in range(2):
            document = steps(Training(rank, layers=(400_000,) * 6), usual)
            path = Path(folder, f"a-trace-with-a-long-name-{rank}.json")
            path.write_text(json.dumps(document if rank else {**document, "distributedInfo": {}}))
            paths.append(path)
        job = read_job(paths)
    imported = step_of(job, batch_size=None, allow_no_gradients=True)
    return render_diagnosis(diagnose(job, imported, network, budget_s=0.1))


def an_accuracy(steps=("chain", "inception_v1")):
    rows = [
        row_of(
            Configuration(
                step=step, policy="fifo", architecture="ps", mode="async", workers=row.workers, servers=1
            ),
            row,
            (0.9 * row.throughput, 1.1 * row.throughput),
            out_of_order=0.0,
            stolen=0.01,
        )
        for step in steps
        for row in fake_curve()
    ]
    network = NetworkFile(bandwidth_bps=0.957e9)
    return render_accuracy(
        Accuracy(request=AccuracyRequest(), network=network, rows=rows, groups=groups_of(rows), wall_s=1.0)
    )


def a_reproduction():
    return render_reproduction([made()], ABOUT)


def a_training_run():
    def named(name):
        return name.replace("a.weight", LONG)

    return render_training(TrainingEntry(fake_training(names=named)))


def a_comparison():
    return render_comparison(fake_simulation(), fake_training())


PAGES = {
    page.__name__: page
    for page in (
        *(a_step, a_cluster, a_recorded_cluster, a_prediction, an_accuracy, a_reproduction),
        *(a_training_run, a_comparison, a_rental, a_diagnosis),
    )
}


@pytest.fixture(scope="module")
def live():
    waiting = job("b", "queued", "queued", gpus=(), start_s=None, why=LONG)
    with page_served(render_live().encode()) as server:
        server.status = state_of(job("a"), waiting)
        yield server


@pytest.fixture(params=[*PAGES, "live"])
def page(request, browser, live, tmp_path):
    """Opens the page at a width and in a colour scheme; its address."""

    def opened(width, scheme="light"):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
        if request.param == "live":
            browser.get_log("browser"), browser.get_log("performance")
            browser.get(live.url)
            wait_for_figures(browser)
            wait_until(browser, lambda driver: "3/10" in driver.page_source)
            return live.url
        path = tmp_path / "page.html"
        path.write_text(PAGES[request.param](), encoding="utf-8")
        open_page(browser, path)
        return path.as_uri()

    yield opened
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


SEEN = "document.querySelectorAll('.plot').forEach((plot) => plot.scrollIntoView());"


def test_ticks_of_a_logarithmic_axis_are_whole_numbers(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(an_accuracy(), encoding="utf-8")
    open_page(browser, path)
    ticks = "return [...document.querySelectorAll('.ytick text')].map((tick) => Number(tick.textContent))"
    rates = [row.throughput for row in fake_curve()]
    found = browser.execute_script(ticks)
    assert found
    assert all(0.8 * min(rates) < tick < 1.2 * max(rates) for tick in found)


def test_costs_of_offers_that_cost_about_the_same_have_ticks(browser, tmp_path):
    step = load_step(GOLDEN / "branches.step.json")
    common = {"device": "toy", "gpus": 2, "most_nodes": 4, "intra_bps": 1e12, "bandwidth_bps": 1e12}
    offers = [Offer(name=name, price_per_hour=price, **common) for name, price in (("a", 10), ("b", 10.9))]
    path = tmp_path / "page.html"
    path.write_text(rent(step, offers, TrainingJob(examples=1e6)).plot().html, encoding="utf-8")
    open_page(browser, path)
    ticks = browser.execute_script(
        "return [...document.querySelectorAll('#front .ytick text')].map((tick) => tick.textContent)"
    )
    assert ticks == ["5,000", "6,000", "7,000"]


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window_and_every_figure_has_a_text(browser, page, width):
    address = page(width)
    browser.execute_script(SEEN)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert errors(browser) == []
    assert set(requested(browser)) - {"data:,", address, address + "v1/status"} == set()
    figures = browser.execute_script(
        """return [...document.querySelectorAll(".plot")].map((plot) => [plot.getAttribute("aria-label"),
             document.getElementById(plot.getAttribute("aria-describedby")).textContent.trim()]);"""
    )
    assert figures
    assert all(label and text for label, text in figures)


# Every text against what is behind it, as WCAG has it for text of any size.
CONTRASTS = """
const channels = (text) => text.match(/[\\d.]+/g).map(Number);
const luminance = (rgb) => {
  const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = rgb.slice(0, 3).map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const bar = element.closest(".point")?.querySelector("path");  // a name that stands on a bar
  if (bar) return channels(getComputedStyle(bar).fill);
  for (let at = element; at; at = at.parentElement) {
    const found = channels(getComputedStyle(at).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
};
const low = [];
for (const element of document.querySelectorAll("body *:not(script):not(option)")) {
  if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
  const style = getComputedStyle(element);
  if (style.visibility === "hidden" || !element.getClientRects().length) continue;
  const ink = luminance(channels(element.closest("svg") ? style.fill : style.color));
  const paper = luminance(behind(element));
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < 4.5) low.push([element.textContent.trim().slice(0, 40), ratio]);
}
return low;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(browser, page, scheme):
    page(1280, scheme)
    assert browser.execute_script(CONTRASTS) == []


def test_what_scrolls_and_what_is_pressed_can_have_the_focus(browser, page):
    page(390)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    unreached = browser.execute_script(
        """return [...document.querySelectorAll(".scroll, button, select, input, summary, a")]
             .filter((element) => element.getClientRects().length)
             .filter((element) => { element.focus(); return document.activeElement !== element; })
             .map((element) => element.outerHTML.slice(0, 80));"""
    )
    assert unreached == []


@pytest.fixture
def phone(browser, tmp_path):
    """Opens a page as a phone has it."""

    def opened(page):
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        open_page(browser, path)

    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False},
    )
    yield opened
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(("made", "heading"), [(a_step, "Step time"), (a_cluster, "Average JCT")])
def test_what_decides_is_in_view_on_a_phone(browser, phone, made, heading):
    phone(made())
    edges = browser.execute_script(
        """const scroll = document.querySelector("#ranking").closest(".scroll");
           const names = [...document.querySelectorAll("#ranking th")].map((th) => th.textContent);
           const k = names.findIndex((name) => name.startsWith(arguments[0]));
           return [...document.querySelectorAll("#ranking tr")].map((row) =>
             row.cells[k].getBoundingClientRect().right - scroll.getBoundingClientRect().right);""",
        heading,
    )
    assert max(edges) <= 0


def test_names_of_policies_stay_in_the_figure_on_a_phone(browser, phone):
    phone(a_step())
    beyond = browser.execute_script(
        """const plot = document.getElementById("overlap"), place = plot.getBoundingClientRect();
           const least = place.left + plot.layout.margin.l, most = place.right;
           return [...plot.querySelectorAll(".annotation-text")].filter((text) => text.textContent.length > 3)
             .map((text) => [text.textContent, text.getBoundingClientRect()])
             .filter(([, at]) => at.left < least || at.right > most).map(([text]) => text);"""
    )
    assert beyond == []


def test_a_legend_of_many_series_stays_above_its_figure(browser, phone):
    phone(an_accuracy(steps=[f"a-model-with-a-long-name-{k}" for k in range(10)]))
    legend, plot = browser.execute_script(
        """return [".legend", ".xgrid"].map((css) => document.querySelector("#accuracy " + css))
             .map((drawn) => drawn.getBoundingClientRect()).map(({top, bottom}) => [top, bottom]);"""
    )
    assert legend[1] <= plot[0] + 1
