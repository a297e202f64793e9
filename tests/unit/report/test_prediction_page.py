"""The page of a prediction: what it says and draws, and that it fetches nothing."""

import pytest
from fake_predictions import fake_curve, fake_prediction
from test_step_page import NASTY, Page

from hocket.errors import HocketError
from hocket.report.prediction_measured import MeasuredThroughput, model_errors
from hocket.report.prediction_page import render_prediction
from hocket.report.prediction_table import narrow_columns, prediction_columns, saturated_rows


def test_it_opens_with_the_answers():
    text = Page(render_prediction(fake_curve(), title="My sweep", setup="10 Gbit/s")).text
    for phrase in (
        "My sweep",
        "10 Gbit/s",
        "Saturates at 8 workers 400 examples/s",
        "Busiest there downlink in use 100.0% of the time, else waiting",
        "Speed-up 8.00x over one worker alone, efficiency 100%",
        "throughput saturates at 8 workers",
    ):
        assert phrase in text
    assert "Read with care" not in text


def test_where_more_workers_are_slower_the_fastest_is_shown_and_nothing_saturates():
    rows = [fake_prediction(w, throughput=rate) for w, rate in ((1, 50.0), (2, 97.0), (4, 100.0), (8, 60.0))]
    page = Page(render_prediction(rows))
    assert "Fastest with 4 workers 100 examples/s" in page.text
    assert "of the numbers tried, 4 workers are fastest" in page.text
    assert "aturates" not in page.text
    assert page.data["prediction"]["curves"][0]["saturation"] is None
    alone = Page(render_prediction([fake_prediction(w, throughput=50.0 / w) for w in (1, 2, 3)]))
    assert "Fastest with 1 worker 50 examples/s" in alone.text


def test_lockstep_is_a_caveat():
    text = Page(render_prediction([fake_prediction(1), fake_prediction(2, lockstep=True)])).text
    assert text.count("Read with care: the profile has a single sampled step") == 1


def test_curves_carry_what_the_script_draws():
    rows = [*fake_curve(), *fake_curve(servers=2)]
    data = Page(render_prediction(rows)).data["prediction"]
    assert [curve["name"] for curve in data["curves"]] == [
        "1 server, asynchronous",
        "2 servers, asynchronous",
    ]
    curve = data["curves"][0]
    assert curve["workers"] == [1, 2, 4, 8, 16]
    assert curve["throughput"] == [50, 100, 200, 400, 400]
    assert curve["ideal"] == [50, 100, 200, 400, 800]
    assert curve["saturation"] == 3
    assert curve["lin"] == [40, 80, 160, 320, 320]
    assert (curve["low"], curve["cost"], curve["cheapest"]) == (None, None, None)
    assert data["top"] == 800


def test_intervals_prices_and_points_are_drawn():
    rows = [
        fake_prediction(w, throughput_low=45.0 * w, throughput_high=55.0 * w, cost_per_example=1e-6 * w)
        for w in (1, 2)
    ]
    page = Page(
        render_prediction(rows, points=[MeasuredThroughput(2, 1, 90.0), MeasuredThroughput(2, 1, 110.0)])
    )
    (curve,) = page.data["prediction"]["curves"]
    assert (curve["low"], curve["high"]) == ([45, 90], [55, 110])
    assert (curve["cost"], curve["cheapest"]) == ([1, 2], 0)
    assert curve["measured"] == {"workers": [2, 2], "throughput": [90, 110]}
    assert "95% confidence intervals" in page.text
    assert "Mean error [%]" in page.text
    assert ("id", "cost") in page.attributes


def test_errors_are_relative_to_what_was_measured():
    rows = fake_curve()
    errors = model_errors(rows, [MeasuredThroughput(1, 1, 40.0), MeasuredThroughput(2, 1, 100.0)])
    assert [error.model for error in errors] == ["Hocket", "lin", "cynthia"]
    assert (errors[0].mean, errors[0].largest) == (pytest.approx(0.125), pytest.approx(0.25))
    assert (errors[1].mean, errors[1].largest) == (pytest.approx(0.1), pytest.approx(0.2))
    synchronous = [fake_prediction(1, lin=None, cynthia=None)]
    assert [error.model for error in model_errors(synchronous, [MeasuredThroughput(1, 1, 40.0)])] == [
        "Hocket"
    ]
    assert model_errors(rows, []) == []


def test_the_table_has_columns_for_what_there_is():
    rows = fake_curve()
    headings = [column.heading for column in prediction_columns(rows)]
    assert headings == [
        *("Workers", "Servers", "Throughput", "Speed-up", "Step", "Efficiency", "Busiest", "In use"),
        *("lin", "cynthia"),
    ]
    everything = [
        fake_prediction(1, throughput_low=49.0, throughput_high=51.0, cost_per_example=2e-6, lin=None)
    ]
    columns = {
        column.heading: column for column in prediction_columns(everything, [MeasuredThroughput(1, 1, 40.0)])
    }
    assert columns["95% interval"].cells[0].text == "±1.00"
    assert columns["Measured"].cells[0].value == 40.0
    assert columns["Error"].cells[0].text == "25.0"
    assert columns["Cost"].cells[0].text == "2.000"
    assert "lin" not in columns
    reduced = [fake_prediction(2, servers=0, architecture="allreduce", mode="sync")]
    assert "Servers" not in [column.heading for column in prediction_columns(reduced)]


def test_rows_stay_in_the_order_asked_and_the_saturated_one_stands_out():
    rows = fake_curve()[::-1]
    page = Page(render_prediction(rows))
    assert [cells[0] for cells in page.cells[1:]] == ["16", "8", "4", "2", "1"]
    assert saturated_rows(rows) == [False, True, False, False, False]


def test_the_terminal_gets_few_columns_and_what_is_busiest_in_one():
    rows = fake_curve()
    columns = narrow_columns(rows)
    assert [column.title for column in columns] == [
        *("Workers", "Servers", "Examples/s", "Speed-up", "Step", "Busiest"),
    ]
    assert columns[-1].cells[0].text == "worker processors 90%"
    assert {len(column.cells) for column in columns} == {5}


def test_rates_of_hours_are_read_by_the_hour():
    rows = [fake_prediction(w, throughput=w / 3600, step_s=3600.0) for w in (1, 2)]
    (rate,) = [column for column in narrow_columns(rows) if column.heading == "Throughput"]
    assert (rate.short, [cell.text for cell in rate.cells]) == ("Examples/h", ["1.000", "2.000"])
    assert [cell.value for cell in rate.cells] == pytest.approx([1.0, 2.0])


def test_idle_rows_render():
    rows = [fake_prediction(w, throughput=0.0, step_s=0.0, lin=0.0, cynthia=0.0) for w in (1, 2)]
    page = Page(render_prediction(rows))
    assert page.cells[1] == ["1", "1", "0.000", "0.000", "worker processors", "90.0", "0.000", "0.000"]
    assert page.data["prediction"]["top"] == 0


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_leave_their_place(name):
    plain = Page(render_prediction([fake_prediction(1)], title="t", setup="s"))
    page = Page(render_prediction([fake_prediction(1, policy=name, bottleneck=name)], title=name, setup=name))
    assert page.tags == plain.tags
    assert page.data["prediction"]["curves"][0]["bottleneck"] == [name]


def test_nothing_is_fetched():
    html = render_prediction(fake_curve(), points=[MeasuredThroughput(1, 1, 40.0)])
    assert "default-src 'none'" in html
    page = Page(html)
    assert not {"src", "srcset", "action", "poster", "data"} & {key for key, _ in page.attributes}
    assert [value for key, value in page.attributes if key == "href"] == ["data:,"]


def test_a_page_needs_a_row():
    with pytest.raises(HocketError, match="at least one row"):
        render_prediction([])
