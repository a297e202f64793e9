"""A headless Chromium that never reaches the network, and quits whatever happens."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    for name, path in programs.items():
        if path is None:
            pytest.skip(f"{name} is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs["chromedriver"]))
    try:
        driver.set_page_load_timeout(40)
        driver.set_script_timeout(20)
        yield driver
    finally:
        driver.quit()
