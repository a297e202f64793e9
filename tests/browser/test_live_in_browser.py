"""The page of a live cluster in a browser: it shows what changes, and asks nobody but its manager."""

import msgspec
import pytest
from test_report_in_browser import EVIL, errors, requested, wait_until

from hocket.cluster.live.manager_messages import JobStatus, Status, TransferSpan
from hocket.cluster.live.page_server import PageServer
from hocket.report.live_page import render_live


def job(name, state="running", stage="computing", **changes):
    fields = {
        **{"id": name, "model": "m", "state": state, "stage": stage, "gpus": ((0, 0), (1, 1)), "wanted": 2},
        **{"iteration": 3, "iterations": 10, "attempt": 1, "arrival_s": 0.0, "start_s": 1.0},
        **{"finish_s": None, "jct_s": None, "why": ""},
    }
    return JobStatus(**fields | changes)


def state_of(*jobs, **changes):
    fields = {
        **{"now_s": 12.0, "placement": "lwf-1", "policy": "ada-srsf", "gpus_per_server": 2},
        **{"nodes": ("node0", "node1"), "drained": (), "silent": (), "jobs": jobs, "average_jct_s": None},
        "transfers": (TransferSpan("a", (0, 1), 2.0, 3.0), TransferSpan("a", (0, 1), 4.0, None)),
    }
    return msgspec.json.encode(Status(**fields | changes))


@pytest.fixture
def served():
    server = PageServer("127.0.0.1", 0, render_live().encode(), print)
    yield server
    server.close()


def text(browser, css):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", css)


def test_changes_are_seen_and_nobody_else_is_asked(browser, served):
    waiting = job("b", "queued", "queued", gpus=(), start_s=None)
    served.state = state_of(job("a"), waiting)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert text(browser, "#queued") == "1"
    assert "3/10" in text(browser, "#jobs tbody")
    bars = "return document.querySelectorAll(arguments[0] + ' .bars .point').length"
    assert browser.execute_script(bars, "#gpu-plot") == 2
    assert browser.execute_script(bars, "#network-plot") == 4

    ended = job("a", "finished", "finished", iteration=10, finish_s=14.0, jct_s=14.0)
    served.state = state_of(
        ended, job("b"), now_s=15.0, drained=("node1",), silent=("node0",), average_jct_s=14.0
    )
    wait_until(browser, lambda driver: text(driver, "#over") == "1")
    assert "14.00" in text(browser, "#jct")
    assert "drained: node1 · no answer from node0" in text(browser, "#setup")
    assert browser.execute_script(bars, "#gpu-plot") == 4
    asked = set(requested(browser)) - {"data:,"}
    assert asked == {served.url, served.url + "state"}
    assert errors(browser) == []


def test_names_stay_text(browser, served):
    served.state = state_of(job(EVIL, why=EVIL))
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert browser.execute_script("return document.images.length") == 0
    assert EVIL in text(browser, "#jobs tbody")


def test_a_manager_that_is_gone_is_said(browser, served):
    served.state = state_of(job("a"))
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    served.close()
    wait_until(browser, lambda driver: "does not answer" in text(driver, "#setup"))
