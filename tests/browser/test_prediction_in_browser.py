"""The page of a prediction in a browser: its curves, its measured points, its labels, on any screen."""

import pytest
from fake_predictions import fake_curve, fake_prediction
from test_report_in_browser import click, errors, open_page, requested, wait_until

from hocket.report.prediction_measured import MeasuredThroughput
from hocket.report.prediction_page import render_prediction

ALL_MODELS = {"Hocket", "ideal", "lin", "cynthia", "measured"}


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Opens a page of the given rows."""

    def opened(rows, **options):
        path = tmp_path_factory.mktemp("page") / "prediction.html"
        path.write_text(render_prediction(rows, **options), encoding="utf-8")
        open_page(browser, path)
        return path

    return opened


@pytest.fixture(scope="module")
def single(browser, page):
    page(fake_curve(), points=[MeasuredThroughput(1, 1, 48.0), MeasuredThroughput(4, 1, 190.0)])
    return browser


def lines_drawn(browser, plot="throughput"):
    """How many paths of lines are in a picture, and how many points."""
    return browser.execute_script(
        """const plot = document.getElementById(arguments[0]);
           return [plot.querySelectorAll(".cartesianlayer .js-line").length,
                   plot.querySelectorAll(".cartesianlayer .point").length];""",
        plot,
    )


def texts(browser, css):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", css
    )


def labels(browser, plot="throughput"):
    return texts(browser, f"#{plot} .annotation-text")


def test_it_opens_whole_and_fetches_nothing(browser, page):
    path = page(fake_curve(), title="fresh")
    assert requested(browser) in ([path.as_uri()], [path.as_uri(), "data:,"])
    assert errors(browser) == []
    assert browser.title == "fresh"


def test_curves_models_and_measured_points_are_drawn(single):
    names = texts(single, "#throughput .legendtext")
    assert set(names) == ALL_MODELS
    # Ours, the ideal line and two models; five predicted points, two measured, one ring.
    assert lines_drawn(single) == [4, 5 + 2 + 1]
    assert labels(single) == ["saturates at 8 workers"]


def test_axes_have_titles_with_units(single):
    titles = texts(single, "#throughput .xtitle, #throughput .ytitle")
    assert set(titles) == {"workers", "throughput (examples/s)"}


def test_axes_can_be_logarithmic(single):
    def ticks(driver):
        return [[text for text in texts(driver, f"#throughput .{axis}tick") if text] for axis in "xy"]

    click(single, "#logarithmic")
    wait_until(single, lambda driver: ticks(driver)[1] == ["50", "100", "200", "500"])
    assert ticks(single)[0] == ["1", "2", "4", "8", "16"]
    assert lines_drawn(single) == [4, 8]
    click(single, "#logarithmic")
    wait_until(single, lambda driver: ticks(driver)[1][0] == "0")


def test_headings_sort_the_rows(single):
    def workers():
        return single.execute_script(
            "return [...document.querySelectorAll('#ranking tbody tr')].map((row) => row.cells[0].innerText)"
        )

    assert workers() == ["1", "2", "4", "8", "16"]
    click(single, "#ranking th button", 0)
    click(single, "#ranking th button", 0)
    assert workers() == ["16", "8", "4", "2", "1"]


def test_nothing_went_wrong_so_far(single):
    assert errors(single) == []


def test_several_servers_and_prices(browser, page):
    rows = [
        *fake_curve(),
        *(
            fake_prediction(
                w, 2, cost_per_example=1e-6 * (5 - w), throughput_low=40.0 * w, throughput_high=60.0 * w
            )
            for w in (1, 2, 4)
        ),
    ]
    page(rows)
    # Two curves, with an ideal line and two models each, and a band without a line of its own.
    assert lines_drawn(browser)[0] >= 8
    assert labels(browser) == ["saturates at 8 workers"]
    assert labels(browser, "cost") == ["cheapest: 4 workers"]
    assert lines_drawn(browser, "busy")[0] == 2
    assert errors(browser) == []


@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits_narrow_and_wide_screens(browser, page, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        wide = fake_curve(servers=2, workers=(1, 2, 4, 8, 16, 32))
        page([*fake_curve(), *wide], points=[MeasuredThroughput(1, 1, 48.0)])
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        legend, room = browser.execute_script(
            """const plot = document.getElementById("throughput");
               return [plot.querySelector(".legend").getBBox().height, plot.layout.margin.t];"""
        )
        assert 0 < legend < room
        assert errors(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_on_a_dark_screen(browser, page):
    def ink():
        return browser.execute_script("return document.getElementById('throughput').layout.font.color")

    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        page(fake_curve())
        on_screen = ink()
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    wait_until(browser, lambda driver: ink() != on_screen)
    assert errors(browser) == []
