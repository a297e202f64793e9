"""The stored factors are the fit's, and the residuals are what the roofline predicts."""

import math

import numpy as np
import pytest

from hocket import models
from hocket.errors import HocketError, UnknownNameError
from hocket.profiler import Target, calibrate, calibration, derive, fake, make_step, residuals
from hocket.profiler.calibration import PUBLISHED, _gauss_newton
from hocket.profiler.paper_roofline import FITTED


def test_the_published_figures_are_those_of_the_papers():
    images_s = {(p.device, p.model, p.batch_size): p.images_s for p in PUBLISHED}
    assert len(images_s) == len(PUBLISHED) == 16
    assert images_s["k80", "inception_v3", 64] == 30.5
    assert images_s["p100", "alexnet_v2", 512] == 2987
    assert images_s["v100", "vgg16", 16] == pytest.approx(16 / 0.0895)


def test_gauss_newton_finds_a_nonlinear_minimum():
    x = np.linspace(0, 2, 9)
    y = 3 * np.exp(-0.7 * x)
    found = _gauss_newton(lambda point: np.exp(point[0]) * np.exp(point[1] * x) - y, np.array([0.0, 0.0]))
    assert found == pytest.approx([math.log(3), -0.7], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("device", [pytest.param("k80", marks=pytest.mark.long), "p100", "v100", "a100"])
def test_stored_residuals_are_those_of_the_stored_factors(device):
    stored = [(row.model, row.batch_size, row.ratio) for row in calibration.stored_of_papers(device)]
    computed = [(row.model, row.batch_size, pytest.approx(row.ratio, abs=6e-4)) for row in residuals(device)]
    assert stored == computed


@pytest.mark.slow
def test_calibrating_gives_the_stored_factors():
    fitted = calibrate()
    factors = fitted.factors
    assert factors.matrix == pytest.approx(FITTED.matrix, rel=1e-3)
    assert factors.memory == pytest.approx(FITTED.memory, rel=1e-3)
    assert factors.winograd_speedup == pytest.approx(FITTED.winograd_speedup, rel=1e-3)
    assert factors.launch_s == FITTED.launch_s
    logarithms = np.log([residual.ratio for residual in fitted.residuals])
    assert len(logarithms) == len(PUBLISHED)
    assert np.sqrt(np.mean(logarithms**2)) < 0.065
    assert np.abs(logarithms).max() < 0.14


def test_residuals_are_what_deriving_predicts(monkeypatch):
    figures = [figure for figure in PUBLISHED if figure.model in ("vgg16", "lstm_ptb")]
    monkeypatch.setattr(calibration, "PUBLISHED", figures)
    rows = {row.model: row for row in residuals("v100")}
    assert list(rows) == ["vgg16", "lstm_ptb"]
    with fake():
        setup = models.make("vgg16", 16)
    graph = derive(make_step(*setup), device=Target("v100", as_papers=True))
    forward_backward_s = graph.durations_s[graph.phases < 2].sum()
    assert rows["vgg16"].predicted_images_s == pytest.approx(16 / forward_backward_s)
    assert rows["vgg16"].ratio == pytest.approx(rows["vgg16"].predicted_images_s * 0.0895 / 16)
    assert "Table III" in rows["vgg16"].source


def test_devices_without_figures_have_no_residuals():
    assert residuals("h100") == []
    with pytest.raises(HocketError, match="device 'cpu' is measured"):
        residuals("cpu")
    with pytest.raises(UnknownNameError):
        residuals("k81")
