"""Every kind of page stays below a megabyte, whatever is on it."""

import numpy as np
import pytest
from fake_clusters import fake_cluster
from fake_predictions import fake_curve
from fake_runs import fake_entries, fake_row, fake_timeline
from fake_trainings import fake_simulation, fake_training

from hocket.graph.timeline import Lane, Span, Timeline
from hocket.report.cluster_page import render_cluster
from hocket.report.comparison_page import render_comparison
from hocket.report.live_page import render_live
from hocket.report.packed import pack_plotly
from hocket.report.prediction_page import render_prediction
from hocket.report.result_files import ClusterEntry, Entry, TrainingEntry
from hocket.report.step_page import render
from hocket.report.training_page import render_training

MOST_BYTES = 1_000_000


def scattered_timeline(num_spans, seed=3):
    """Spans at random, which compress worst."""
    rng = np.random.default_rng(seed)
    lanes = tuple(Lane(process=f"worker {i // 3}", name=f"lane {i % 3}") for i in range(48))
    starts = rng.uniform(0.0, 1e5, num_spans)
    lengths = rng.exponential(3.0, num_spans)
    spans = tuple(
        Span(int(lane), f"layer{name}.weight", kind, float(start), float(start + length))
        for lane, name, kind, start, length in zip(
            rng.integers(48, size=num_spans),
            rng.integers(500, size=num_spans),
            rng.choice(["forward", "backward", "push", "pull"], num_spans).tolist(),
            starts,
            lengths,
            strict=True,
        )
    )
    return Timeline(title="scattered", lanes=lanes, spans=spans)


def a_step():
    return render(fake_entries(workers=4, num_ops=1500))


def large_steps():
    entries = [
        Entry(fake_row(f"policy {i}", steps=500), scattered_timeline(60_000) if i < 2 else None)
        for i in range(30)
    ]
    return render(entries)


def a_cluster():
    rows = [fake_cluster(f"policy {i}", jobs=160, slower=1.0 + i) for i in range(8)]
    return render_cluster([ClusterEntry(row) for row in rows])


def a_large_cluster():
    rows = [fake_cluster(f"policy {i}", jobs=5000, slower=1.0 + i) for i in range(8)]
    return render_cluster([ClusterEntry(row) for row in rows])


def a_recorded_cluster():
    entries = [ClusterEntry(fake_cluster(p, jobs=160), scattered_timeline(100_000)) for p in ("a", "b")]
    return render_cluster(entries)


def a_training_run():
    return render_training(TrainingEntry(fake_training(workers=8, steps=60)))


def a_comparison():
    return render_comparison(fake_simulation(workers=8), fake_training(workers=8, steps=60))


def a_prediction():
    return render_prediction([row for m in (1, 2, 4, 8) for row in fake_curve(m, tuple(range(1, 65)))])


@pytest.mark.parametrize(
    "page",
    [
        a_step,
        large_steps,
        a_cluster,
        a_large_cluster,
        a_recorded_cluster,
        a_prediction,
        a_training_run,
        a_comparison,
        render_live,
    ],
    ids=lambda page: page.__name__,
)
def test_a_page_weighs_less_than_a_megabyte(page):
    text = page()
    assert pack_plotly() in text
    assert len(text.encode()) < MOST_BYTES


def test_of_very_many_spans_the_first_ones_are_drawn_and_the_caption_says_so():
    from hocket.report.alternatives import timeline_text
    from hocket.report.step_plot_data import MOST_SPANS, TimelinePanel, timeline_figure
    from hocket.text import TimeUnit

    timeline = scattered_timeline(MOST_SPANS + 1000)
    run = TimelinePanel("run", "tac", timeline)
    (panel,) = timeline_figure([run], TimeUnit("s", 1.0))["panels"]
    assert len(panel["start"]) == MOST_SPANS
    assert panel["caption"] == f"run, the first {MOST_SPANS} of {MOST_SPANS + 1000} spans"
    drawn = f"of its {MOST_SPANS + 1000} spans the first {MOST_SPANS} drawn"
    assert drawn in timeline_text([run], TimeUnit("s", 1.0))
    begin_s = min(span.start_s for span in timeline.spans)
    beyond = sorted(span.start_s - begin_s for span in timeline.spans)[MOST_SPANS]
    assert max(panel["start"]) <= beyond
    small = fake_timeline(workers=1, num_ops=9, num_parameters=3)
    (whole,) = timeline_figure([TimelinePanel("run", "tac", small)], TimeUnit("s", 1.0))["panels"]
    assert whole["caption"] == "run"


def test_the_same_results_make_the_same_page(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    row = fake_row("tac")
    assert render([Entry(row)]) == render([Entry(row)])
