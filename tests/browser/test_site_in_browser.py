"""The documentation site: built without a warning, asks no other host, and its search finds things."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# From another host; links that a reader may follow are not.
FETCHED = re.compile(r"<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")

# The width of each drawn figure, and if what it stands in ends within the window.
FIGURES_OF_PAGE = """return [...document.querySelectorAll("article img[src$='.svg']")].map((image) =>
  [image.getBoundingClientRect().width, image.parentElement.getBoundingClientRect().right <= innerWidth]);"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; docs and package are copied, since the builder writes beside them."""
    folder = tmp_path_factory.mktemp("docs")
    left_out = shutil.ignore_patterns("__pycache__")
    for name in ("docs", "hocket"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    shutil.copy(ROOT / "zensical.toml", folder)
    built = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def address(site):
    """The address of a server of the site on the loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_every_page_is_there_and_asks_no_other_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    fetched = {match for page in pages for match in FETCHED.findall(page.read_text())}
    assert not {tag for tag in fetched if "canonical" not in tag}
    assert "hocket.distribute" in (site / "api/index.html").read_text()
    assert ":class:" not in (site / "api/index.html").read_text()


@pytest.mark.parametrize(
    ("words", "page"),
    [("NCCL", "faq/"), ("gloo", "guides/"), ("two machines", "guides/machines/"), ("FSDP", "faq/")],
)
def test_the_sites_search_finds_the_page_of_a_word(browser, address, words, page):
    browser.get(f"{address}/index.html")
    browser.find_element("css selector", ".md-search__button").click()
    # The search draws itself in a shadow tree, whose host has the focus once it is open.
    host = _waited(lambda: one if (one := browser.switch_to.active_element).tag_name == "div" else None)
    host.send_keys(words)
    in_shadow = "return [...arguments[0].shadowRoot.querySelectorAll('a')].map(link => link.href)"
    assert _waited(lambda: [link for link in browser.execute_script(in_shadow, host) if page in link])


def test_a_phone_reads_figures_and_scrolls_them_alone(browser, address):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for page in ("", "guides/cluster/"):
            browser.get(f"{address}/{page}index.html")
            figures = _waited(lambda: browser.execute_script(FIGURES_OF_PAGE))
            assert all(width >= 600 and within for width, within in figures)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _waited(ask, seconds=30):
    """The first answer of ``ask`` that is not empty; an error after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"nothing in {seconds} s")
