"""The page as a reader meets it: opened from a file, in a browser, without a network."""

import json

import pytest
from fake_runs import fake_entries, fake_row, fake_timeline

from hocket.report.result_files import Entry
from hocket.report.step_page import render

EVIL = "</script><img src=x onerror=\"document.title='pwned'\"><b>%{x}"


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Opens a page of the given entries."""

    def opened(entries, name):
        path = tmp_path_factory.mktemp("page") / f"{name}.html"
        path.write_text(render(entries, title=name), encoding="utf-8")
        open_page(browser, path)
        return path

    return opened


@pytest.fixture(scope="module")
def report(browser, page):
    page(fake_entries(num_ops=1500), "report")
    return browser


def open_page(browser, path):
    """Open the page and wait for its figures; what the browser logged before is forgotten."""
    browser.get("about:blank")  # a live page goes on asking its manager until it is left
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())
    wait_for_figures(browser)


def wait_for_figures(browser):
    wait_until(
        browser, lambda driver: driver.execute_script("return document.documentElement.dataset.figures")
    )


def requested(browser):
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        # What the browser's own first tab still loads is not the page's.
        if event["method"] == "Network.requestWillBeSent"
        and not event["params"]["documentURL"].startswith("chrome:")
    ]


def errors(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def ranges(browser):
    return browser.execute_script(
        "const l = document.getElementById('timeline').layout; return [l.xaxis.range, l.xaxis2.range];"
    )


def drawn(browser):
    """For each trace of the timeline: its kind, whether it is visible, and how many bars it has."""
    return browser.execute_script(
        """return document.getElementById("timeline").data.map((trace) =>
             [trace.name, trace.visible === true, trace.x.filter((x) => x !== null).length / 4]);"""
    )


def column(browser, index):
    return browser.execute_script(
        """return [...document.querySelectorAll("#ranking tbody tr")]
             .map((row) => row.cells[arguments[0]].innerText);""",
        index,
    )


def wait_until(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 15, 0.1).until(condition)


def click(browser, css, number=0):
    from selenium.webdriver.common.by import By

    element = browser.find_elements(By.CSS_SELECTOR, css)[number]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def test_it_opens_whole_and_fetches_nothing(browser, page):
    path = page(fake_entries(num_ops=300), "fresh")
    assert requested(browser) in ([path.as_uri()], [path.as_uri(), "data:,"])
    assert errors(browser) == []
    assert browser.title == "fresh"


def test_rows_are_ranked_and_headings_sort(report):
    assert column(report, 1)[:3] == ["search", "tac", "tic"]
    assert column(report, 0) == [str(i) for i in range(1, 9)]
    click(report, "#ranking th button", 1)
    assert column(report, 1) == sorted(column(report, 1))
    click(report, "#ranking th button", 2)
    times = [float(text) for text in column(report, 2)]
    assert times == sorted(times)
    click(report, "#ranking th button", 2)
    assert [float(text) for text in column(report, 2)] == times[::-1]
    click(report, "#ranking th button", 0)
    assert column(report, 0) == [str(i) for i in range(1, 9)]


def test_the_overlap_plot_has_contours_points_and_clouds(report):
    labels = report.execute_script(
        "return [...document.querySelectorAll('#overlap .annotation-text')].map((t) => t.textContent)"
    )
    assert {"99%", "40%", "tac", "random", "utilization"} <= set(labels)
    points = report.execute_script("return document.querySelectorAll('#overlap .scatterlayer .point').length")
    assert points == 8 + 8 * 20


def test_spans_are_drawn_for_both_runs(report):
    traces = drawn(report)
    assert {name for name, _, _ in traces} == {"forward", "backward", "update", "pull", "push"}
    assert all(visible and bars > 3 for _, visible, bars in traces)
    paths = report.execute_script(
        """return [...document.querySelectorAll("#timeline .scatterlayer .js-fill")]
             .map((path) => path.getAttribute("d").length);"""
    )
    assert len(paths) == 10
    assert min(paths) > 50


def test_dragging_zooms_both_runs_and_double_click_shows_all(report):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    (full, _) = ranges(report)
    area = report.find_element(By.CSS_SELECTOR, "#timeline .nsewdrag")
    report.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    before = sum(bars for _, _, bars in drawn(report))
    drag = ActionChains(report).move_to_element_with_offset(area, -200, 0).click_and_hold()
    drag.move_by_offset(30, 2).move_by_offset(30, 2).release().perform()
    # The second plot and the bars follow the first one's axis a moment later.
    wait_until(report, lambda driver: full != ranges(driver)[0] == ranges(driver)[1])
    wait_until(report, lambda driver: before != sum(bars for _, _, bars in drawn(driver)))
    first, second = ranges(report)
    assert first == pytest.approx(second)
    assert full[0] < first[0] < first[1] < full[1]
    assert first[1] - first[0] == pytest.approx((full[1] - full[0]) * 60 / area.size["width"], rel=0.1)

    ActionChains(report).move_to_element(area).double_click().perform()
    wait_until(report, lambda driver: ranges(driver)[0] == full)


def test_pointing_at_a_span_names_it(report):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    area = report.find_element(By.CSS_SELECTOR, "#timeline .nsewdrag")
    report.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    top = 8 - area.size["height"] // 2
    ActionChains(report).move_to_element_with_offset(area, 0, top - 1).move_by_offset(0, 1).perform()
    text = wait_until(report, lambda driver: driver.find_element(By.ID, "tooltip").text)
    assert text.startswith("op")
    assert "worker 0, processor" in text
    assert "duration" in text


def test_a_box_hides_a_kind(report):
    click(report, "#kinds input", 3)
    wait_until(report, lambda driver: not all(visible for _, visible, _ in drawn(driver)))
    assert {name for name, visible, _ in drawn(report) if not visible} == {"pull"}
    click(report, "#kinds input", 3)
    wait_until(report, lambda driver: all(visible for _, visible, _ in drawn(driver)))


def test_keys_go_from_span_to_span_and_zoom(report):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    plot = report.find_element(By.ID, "timeline")
    report.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", plot)

    def told(*keys):
        plot.send_keys(*keys)
        return report.find_element(By.ID, "tooltip").text.splitlines()

    first = told(Keys.ARROW_RIGHT)
    assert first[1] == "forward · worker 0, processor"
    second = told(Keys.ARROW_RIGHT)
    assert second[0] != first[0]
    assert told(Keys.ARROW_LEFT) == first
    assert told(Keys.ARROW_DOWN)[1] == "pull · worker 0, downlink"
    assert report.find_element(By.ID, "selected").is_displayed()
    (full, _) = ranges(report)
    plot.send_keys("+")
    wait_until(report, lambda driver: ranges(driver)[0][1] - ranges(driver)[0][0] < 0.6 * (full[1] - full[0]))
    plot.send_keys(Keys.HOME)
    wait_until(report, lambda driver: ranges(driver)[0] == full)
    plot.send_keys(Keys.ESCAPE)
    assert not report.find_element(By.ID, "selected").is_displayed()


def test_the_selector_leaves_one_worker(report):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    def lanes(driver):
        return [element.text for element in driver.find_elements(By.CSS_SELECTOR, "#timeline .ytick")]

    assert len(lanes(report)) == 13
    choice = Select(report.find_element(By.ID, "lanes"))
    choice.select_by_visible_text("worker 2")
    wait_until(report, lambda driver: len(lanes(driver)) == 3)
    assert "worker 2" in lanes(report)[0]
    choice.select_by_visible_text("all")
    wait_until(report, lambda driver: len(lanes(driver)) == 13)


def test_nothing_went_wrong_so_far(report):
    assert errors(report) == []


def test_names_stay_text(browser, page):
    timeline = fake_timeline(workers=1, num_ops=30, num_parameters=4)
    page([Entry(fake_row(EVIL, model=EVIL), timeline), Entry(fake_row("tic"))], EVIL.replace("/", "|"))
    assert browser.title == EVIL.replace("/", "|")
    assert browser.execute_script("return document.images.length") == 0
    assert EVIL in column(browser, 1)
    assert errors(browser) == []


def test_dark_on_a_dark_screen_and_light_on_paper(browser, page):
    def ink():
        return browser.execute_script("return document.getElementById('overlap').layout.font.color")

    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        page([Entry(fake_row("tac"), fake_timeline(num_ops=60))], "dark")
        on_screen = ink()
        browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        on_paper = ink()
        browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
        assert ink() == on_screen != on_paper
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    wait_until(browser, lambda driver: ink() == on_paper)
    assert errors(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_narrow_and_wide_screens(browser, page, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        page([Entry(fake_row("tac"), fake_timeline(num_ops=60)), Entry(fake_row("random"))], f"width{width}")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert errors(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
