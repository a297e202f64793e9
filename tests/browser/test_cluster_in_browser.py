"""The page of a shared cluster in a browser: its pictures, its controls, on any screen."""

import pytest
from fake_clusters import fake_cluster
from test_report_in_browser import EVIL, click, errors, open_page, requested, wait_until

from hocket.report.cluster_page import render_cluster
from hocket.report.result_files import ClusterEntry

POLICIES = ("psrsf", "srsf-1", "ada-srsf")


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Opens a page of the given rows."""

    def opened(rows, **options):
        path = tmp_path_factory.mktemp("page") / "cluster.html"
        path.write_text(render_cluster([ClusterEntry(row) for row in rows], **options), encoding="utf-8")
        open_page(browser, path)
        return path

    return opened


@pytest.fixture(scope="module")
def three(browser, page):
    page([fake_cluster(policy, slower=1.0 + k) for k, policy in enumerate(POLICIES)])
    return browser


def texts(browser, css):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", css
    )


def test_it_opens_whole_and_fetches_nothing(browser, page):
    path = page([fake_cluster()], title="fresh")
    assert requested(browser) in ([path.as_uri()], [path.as_uri(), "data:,"])
    assert errors(browser) == []
    assert browser.title == "fresh"


def test_every_result_has_a_curve(three):
    assert texts(three, "#jct .legendtext") == [f"lwf-1 / {policy}" for policy in POLICIES]
    assert (
        three.execute_script("return document.querySelectorAll('#jct .cartesianlayer .js-line').length") == 3
    )
    assert set(texts(three, "#jct .xtitle, #jct .ytitle")) == {"completion time [min]", "jobs [%]"}


def test_time_can_be_linear(three):
    kind = "return document.getElementById('jct').layout.xaxis.type"
    assert three.execute_script(kind) == "log"
    click(three, "#logarithmic")
    wait_until(three, lambda driver: driver.execute_script(kind) == "linear")
    click(three, "#logarithmic")
    wait_until(three, lambda driver: driver.execute_script(kind) == "log")


def test_parts_are_stacked_bars(three):
    assert texts(three, "#parts .legendtext") == [
        *("Queueing", "Computing", "GPU wait", "Transferring", "Network wait")
    ]
    assert three.execute_script("return document.querySelectorAll('#parts .bars .point').length") == 15


def test_contention_and_gpus_are_drawn(three):
    assert (
        three.execute_script(
            "return document.querySelectorAll('#contention .cartesianlayer .js-line').length"
        )
        == 3
    )
    drawn = three.execute_script(
        """return document.getElementById("timeline").data.map((trace) => [trace.name, trace.x.length]);"""
    )
    assert {name for name, _ in drawn} == {"local", "networked"}
    assert all(points > 1 for _, points in drawn)
    assert errors(three) == []


def test_names_stay_text(browser, page):
    page([fake_cluster(EVIL, source=EVIL), fake_cluster("b", source="s")], title=EVIL.replace("/", "|"))
    assert browser.title == EVIL.replace("/", "|")
    assert browser.execute_script("return document.images.length") == 0
    assert errors(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_narrow_and_wide_screens(browser, page, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        page([fake_cluster(), fake_cluster("srsf-1", slower=2.0)])
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert errors(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
