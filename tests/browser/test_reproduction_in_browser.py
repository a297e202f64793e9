"""The page of a reproduction in a browser: whole, and every panel drawn once it is in view."""

import pytest
from test_report_in_browser import errors, open_page, requested, wait_until

from hocket.reproduce.papers_page import render
from tests.unit.reproduce.test_output import ABOUT, made


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render([made()], ABOUT), encoding="utf-8")
    open_page(browser, path)
    return path


def test_it_fetches_nothing_and_draws_every_panel(browser, page):
    assert requested(browser) in ([page.as_uri()], [page.as_uri(), "data:,"])
    browser.execute_script("document.querySelector('.panels').scrollIntoView()")
    drawn = "return document.querySelectorAll('.panel.js-plotly-plot').length"
    wait_until(browser, lambda driver: driver.execute_script(drawn) == 3)
    assert errors(browser) == []
    bars = "return document.querySelectorAll('.panels figure:nth-of-type(2) .bars .point').length"
    assert browser.execute_script(bars) == 2
    assert browser.execute_script("return document.querySelectorAll('.claims tbody tr').length") == 3
