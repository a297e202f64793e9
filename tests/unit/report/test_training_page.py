"""The page of a training run and that of a comparison: their numbers by hand, and names in their places."""

import json

import pytest
from fake_runs import fake_row, fake_timeline
from fake_trainings import fake_simulation, fake_training
from test_step_page import NASTY, Page

from hocket.errors import HocketError
from hocket.graph.timeline import Lane, Span, Timeline
from hocket.interop import timeline_document
from hocket.origin import Origin
from hocket.report.comparison_page import render_comparison
from hocket.report.pages import render_results
from hocket.report.result_files import TrainingEntry, load_results
from hocket.report.training_page import render_training
from hocket.report.training_run import training_of


def test_steps_waits_and_transfers_by_hand():
    found = training_of(fake_training(steps=3))
    assert [worker.worker for worker in found.workers] == ["worker 0", "worker 1"]
    assert found.workers[0].step_s == pytest.approx([3.5] * 3)
    assert found.workers[0].computing_s == pytest.approx([3.0] * 3)
    # From 2.6 to 3.1 and from 3.4 to 3.5 of a step, and what of the last transfer reaches into the next one.
    assert found.workers[0].overlap_s[1] == pytest.approx(0.5 + 0.1 + 0.1)
    assert [(wait.name, wait.mean_s) for wait in found.waits] == [
        ("wait a.weight", pytest.approx(0.3)),
        ("wait b.weight", pytest.approx(0.2)),
    ]
    assert {each.name: each.longest_s for each in found.transfers}["b.weight"] == pytest.approx(0.5)


def test_the_page_of_a_training_run_says_what_it_waits_for(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(timeline_document(fake_training())))
    page = Page(render_results(load_results([path])))
    for phrase in (
        "two layers, measured · 2 workers · 4 whole steps · network not recorded",
        "Step time 3.500 s",
        "Computing 85.7% 3.000 s of a step",
        "Waiting 0.500 s",
        "Longest wait 0.300 s of a step, for a.weight",
        "worker 0: a step takes 3.500 s, computing 3.000 s",
    ):
        assert phrase in page.text
    assert ["a.weight", "0.300", "8.6", "0.300"] in page.cells
    assert len(page.data["steps"]) == 2


def test_a_training_run_comes_alone(tmp_path):
    measured, other = tmp_path / "measured.json", tmp_path / "other.json"
    measured.write_text(json.dumps(timeline_document(fake_training())))
    other.write_text(json.dumps(timeline_document(fake_timeline(workers=1, num_ops=9), fake_row())))
    for paths in ([measured, other], [measured, measured]):
        with pytest.raises(HocketError, match="has a page of its own; hocket compare shows two"):
            load_results(paths)


def test_a_run_without_a_whole_step_is_refused():
    spans = (Span(0, "forward a", "forward", 0.0, 1.0), Span(0, "backward a.w", "backward", 1.0, 1.5))
    whole = Timeline(title="one", lanes=(Lane(process="w", name="cpu"),), spans=spans)
    with pytest.raises(HocketError, match="no forward operation"):
        render_training(TrainingEntry(Timeline(title="none", lanes=whole.lanes, spans=spans[1:])))
    assert "1 whole step" in render_training(TrainingEntry(whole))


def test_a_comparison_puts_one_step_of_each_on_one_axis():
    page = Page(render_comparison(fake_simulation(), fake_training()))
    assert "Matched 8 of 8 names of the prediction" in page.text
    predicted, measured = page.data["timelines"]["panels"]
    assert predicted["end"] == pytest.approx(3.5, abs=1e-6)
    assert measured["end"] == pytest.approx(3.5, abs=1e-6)
    assert "Only measured, 2 names: wait b.weight (wait), wait a.weight (wait); training alone" in page.text
    step = next(cells for cells in page.cells if cells[:1] == ["step"])
    assert step == ["step", "3.500", "3.500", "1.000"]


def test_origins_are_told_and_networks_named():
    made = Origin(
        command="hocket simulate a.json", date="2026-01-02 03:04 UTC", version="9.9", network="1 Gbit/s"
    )
    page = Page(render_comparison(fake_simulation(), fake_training(), origins=[made, None]))
    assert "two layers, measured: 2 workers, 4 steps · 1 Gbit/s" in page.text
    assert "hocket simulate a.json · 2026-01-02 03:04 UTC · Hocket 9.9 · 1 Gbit/s" in page.text


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_leave_their_place(name):
    def evil(text):
        return text.replace("a", name, 1)

    for render in (
        lambda names: render_training(TrainingEntry(fake_training(names=names))),
        lambda names: render_comparison(fake_simulation(), fake_training(names=names)),
    ):
        plain, page = Page(render(lambda text: text.replace("a", "x", 1))), Page(render(evil))
        assert set(page.tags) == set(plain.tags)
        assert "img" not in page.tags
