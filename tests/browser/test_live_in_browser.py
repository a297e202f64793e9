"""The page of a live cluster in a browser: it shows what changes, and asks nobody but its manager."""

import itertools
import socket

import pytest
from test_report_in_browser import EVIL, errors, requested, wait_until

from hocket.cluster.live.manager_messages import JobStatus, Status, TransferSpan, TriedStatus
from hocket.report.live_page import render_live
from tests.served_page import page_served


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
    return Status(**fields | changes)


@pytest.fixture
def served():
    with page_served(render_live().encode()) as server:
        yield server


def text(browser, css):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", css)


def test_changes_are_seen_and_nobody_else_is_asked(browser, served):
    waiting = job("b", "queued", "queued", gpus=(), start_s=None)
    served.status = state_of(job("a"), waiting)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert text(browser, "#queued") == "1"
    assert "3/10" in text(browser, "#jobs tbody")
    bars = "return document.querySelectorAll(arguments[0] + ' .bars .point').length"
    assert browser.execute_script(bars, "#gpu-plot") == 2
    assert browser.execute_script(bars, "#network-plot") == 4
    assert text(browser, "#gpu-plot .bartext") == "a"

    ended = job("a", "finished", "finished", iteration=10, finish_s=14.0, jct_s=14.0)
    served.status = state_of(
        ended, job("b"), now_s=15.0, drained=("node1",), silent=("node0",), average_jct_s=14.0
    )
    wait_until(browser, lambda driver: text(driver, "#over") == "1")
    assert "14.00" in text(browser, "#jct")
    assert "drained: node1 · no answer from node0" in text(browser, "#setup")
    assert browser.execute_script(bars, "#gpu-plot") == 4
    asked = set(requested(browser)) - {"data:,"}
    assert asked == {served.url, served.url + "v1/status"}
    assert errors(browser) == []


def test_names_stay_text(browser, served):
    served.status = state_of(job(EVIL, why=EVIL))
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert browser.execute_script("return document.images.length") == 0
    assert EVIL in text(browser, "#jobs tbody")


def test_a_manager_that_is_gone_is_said(browser, served):
    served.status = state_of(job("a"))
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    served.close()
    wait_until(browser, lambda driver: "does not answer" in text(driver, "#setup"))


def bars(browser, css):
    return browser.execute_script(
        "return document.querySelector(arguments[0]).data.map((trace) => [...trace.y.keys()].map("
        "(k) => [trace.y[k], trace.base[k], trace.base[k] + trace.x[k]]))[0]",
        css,
    )


def test_jobs_that_share_a_gpu_lie_below_each_other_and_gpus_count_once(browser, served):
    served.status = state_of(*(job(name, start_s=at) for name, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))))
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "3")
    assert text(browser, "#gpus") == "on 2 of 4 GPUs"
    drawn = bars(browser, "#gpu-plot")
    assert len(drawn) == 6
    for lane in {each[0] for each in drawn}:
        there = sorted(each[1:] for each in drawn if each[0] == lane)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(there))


def test_a_job_that_is_tried_again_is_drawn_where_it_was(browser, served):
    tried = (TriedStatus(gpus=((0, 1),), start_s=1.0, end_s=4.0, why="rank 0 was killed by SIGKILL"),)
    again = job("a", "queued", "queued", gpus=(), tried=tried, attempt=1, reason="waits for 1 GPU")
    moved = job("b", gpus=((1, 0),), placed_s=6.0, tried=tried, attempt=2)
    served.status = state_of(again, moved)
    browser.get(served.url)
    browser.get_log("browser")  # the page before asked a manager that is gone
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert text(browser, "#gpus") == "on 1 of 4 GPUs"
    assert sorted(bars(browser, "#gpu-plot")) == [[1, 1, 4], [2, 1, 4], [3, 6, 12]]
    assert "waits for 1 GPU" in text(browser, "#jobs tbody")
    assert errors(browser) == []


def test_nodes_of_several_sizes_and_programs_that_do_not_report(browser, served):
    silent = job("a", stage="running", reports=False, gpus=((0, 0),), placed_s=1.0)
    served.status = state_of(silent, gpus_of_node=(2, 1), left_out=7)
    browser.get(served.url)
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    assert text(browser, "#gpus") == "on 1 of 3 GPUs"
    assert "3/10" not in text(browser, "#jobs tbody")
    assert text(browser, "#left-out") == "7"


def test_types_of_nodes_and_of_jobs_are_shown_where_they_are_known(browser, served):
    served.status = state_of(job("a"))
    browser.get(served.url)
    browser.get_log("browser")  # the page before asked a manager that is gone
    wait_until(browser, lambda driver: text(driver, "#running") == "1")
    heading = browser.find_element("css selector", "#jobs th:nth-child(5)")
    assert (heading.get_attribute("textContent"), heading.is_displayed()) == ("GPU type", False)
    slow = job("a", gpus=((1, 0), (1, 1)), gpu_type="v100", accepted_types=("a100", "v100"))
    wide = job("b", "queued", "queued", gpus=(), accepted_types=("a100",))
    fast = job("c", gpus=((0, 0),), gpu_type="a100")
    served.status = state_of(slow, wide, fast, gpu_types=(("a100", "a100"), ("v100", "v100")))
    wait_until(browser, lambda driver: text(driver, "#queued") == "1")
    assert heading.is_displayed()
    # In one go, as the page draws its rows anew each second.
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#jobs td:nth-child(5)')].map(cell => cell.innerText)"
    )
    assert cells == ["v100 (or a100)", "a100 (or any)", "(a100)"]
    assert "node0: 2 a100, node1: 2 v100" in text(browser, "#setup")
    assert "node1 GPU 0, v100" in text(browser, "#gpu-plot")
    assert errors(browser) == []


def test_a_page_that_other_machines_reach_asks_for_the_token(browser):
    with page_served(render_live().encode(), host="0.0.0.0") as served:
        served.status = state_of(job("a"))
        url = served.url.replace(socket.gethostname(), "127.0.0.1")
        browser.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
        try:
            browser.get(url)
            wait_until(browser, lambda driver: "those who know its token" in text(driver, "#setup"))
            assert not browser.find_element("id", "running").is_displayed()
            assert "hocket cluster" not in text(browser, "header")
            for token, seen in (("another", "not this cluster's"), (served.token, "lwf-1 / ada-srsf")):
                browser.find_element("id", "token").send_keys(token + "\n")
                wait_until(browser, lambda driver, seen=seen: seen in text(driver, "#setup"))
            assert text(browser, "#running") == "1"
            assert not browser.find_element("id", "token-form").is_displayed()
        finally:
            browser.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": False})
            browser.get_log("browser")


def test_a_phone_has_all_of_it_in_its_width(browser, served):
    served.status = state_of(
        job("a-job-with-a-long-name-" * 3), job("b", "queued", "queued", gpus=(), start_s=None)
    )
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.get(served.url)
        wait_until(browser, lambda driver: text(driver, "#running") == "1")
        assert browser.execute_script("return document.documentElement.scrollWidth") == 390
        cells = "[...document.querySelectorAll('#jobs td')]"
        beyond = f"return {cells}.filter((cell) => cell.getBoundingClientRect().right > 390).length"
        assert browser.execute_script(beyond) == 0
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
