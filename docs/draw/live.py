"""Photograph the live page of a running cluster for guides/cluster.md: ``python docs/draw/live.py``.

A manager on this machine's loopback has three nodes of two slots, and replays jobs that compute (asleep)
and transfer. It needs Chromium, its driver and selenium, and takes about a minute. Two runs are not the
same to the pixel, so nothing checks what is committed.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "figures"
HOCKET = [sys.executable, "-m", "hocket", "cluster"]

# Name of a picture: width, height and pixels a CSS pixel.
SIZES = {"live-wide": (1280, 1120, 1), "live-phone": (390, 844, 1.5)}

# Of each job: GPUs, iterations, seconds of computing an iteration, bytes that it sums up, memory of a GPU.
JOBS = {
    "resnet50": (4, 4000, 0.6, 60_000_000, 9e9),
    "bert": (2, 4000, 0.9, 80_000_000, 6e9),
    "probe": (1, 8, 0.5, 1_000_000, 2e9),
    "vgg16": (4, 4000, 0.5, 90_000_000, 6e9),
    "large": (6, 4000, 0.5, 90_000_000, 12e9),
}
SECONDS = 30  # that jobs run before the picture


def main() -> None:
    """Run the cluster and write its pictures."""
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder)) as address, _browser() as browser:
        time.sleep(SECONDS)
        for name, size in SIZES.items():
            (FIGURES / f"{name}.png").write_bytes(_picture(browser, address, *size))


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """A manager that has the jobs; the address of its page. The jobs end with it."""
    state, jobs = folder / "state", folder / "jobs.json"
    jobs.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": [_job(name) for name in JOBS]}))
    options = ["--servers", "3", "--gpus-per-server", "2", "--placement", "lwf-1", "--policy", "srsf-1"]
    serving = subprocess.Popen(
        [*HOCKET, "serve", "--state", state, *options], stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        address = next(
            found[1] for line in serving.stderr or () if (found := re.search(r"page at (\S+)", line))
        )
        subprocess.run([*HOCKET, "submit", "--state", state, jobs], check=True)
        try:
            yield address
        finally:  # jobs go on without their manager
            for name in JOBS:
                subprocess.run([*HOCKET, "cancel", "--state", state, name], check=True)
    finally:
        serving.terminate()
        serving.wait(30)


def _job(name: str) -> dict[str, Any]:
    gpus, iterations, seconds, size_bytes, memory_bytes = JOBS[name]
    return {
        **{"id": name, "model": name, "gpus": gpus, "iterations": iterations, "arrival_s": 0},
        **{"forward_s": seconds / 3, "backward_s": 2 * seconds / 3},
        **{"size_bytes": size_bytes, "memory_bytes": memory_bytes},
    }


@contextmanager
def _browser() -> Iterator[Any]:
    """A Chromium without a window, which quits with the block."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def _picture(browser: Any, address: str, width: int, height: int, scale: float) -> bytes:
    """The top of the page in a window of that size, once it has drawn its bars."""
    size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)
    end = time.monotonic() + 60
    while not browser.execute_script("return document.querySelectorAll('#gpu-plot .bars .point').length"):
        if time.monotonic() > end:
            sys.exit("the page drew no bar in a minute")
        time.sleep(0.2)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(shot["data"])


if __name__ == "__main__":
    main()
