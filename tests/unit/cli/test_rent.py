"""``hocket rent``: the answer first, one JSON document, a page, and one line for what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.cli.list_options import amount, long_duration
from hocket.errors import HocketError
from hocket.offers.offers_file import example_offers
from tests.unit.cli.test_commands import BRANCHES, hocket, in_tmp, refused

__all__ = ["in_tmp"]

OFFERS = """\
name,device,gpus,price_per_hour,currency,bandwidth,intra_bandwidth,most_nodes
fast,toy,1,10,USD,1Gbit/s,,4
slow,toy,2,3,USD,500bit/s,2kB/s,3
other,l4,1,1,USD,1Gbit/s,,4
"""
JOB = ("--offers", "offers.csv", "--examples", "4k")
EXAMPLE = ("--offers", str(Path(__file__).parents[3] / "examples" / "offers.csv"), "--examples", "4k")


@pytest.fixture(autouse=True)
def offers(in_tmp: Path) -> None:
    Path("offers.csv").write_text(OFFERS)


def test_the_answer_comes_first_then_what_it_rests_on_and_tables() -> None:
    ran = hocket("rent", BRANCHES, *JOB)
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("Cheapest: 2 toy in 1 node (slow): ")
    assert lines[1].startswith("Fastest: 4 toy in 4 nodes (fast): 1.11 hours, 44.4 USD; ")
    assert lines[2] == "Left out: other (l4): no step is for such a card, steps are for toy alone."
    assert lines[3].startswith(
        "toy; batches of 4 a card at any number of cards, so updates of 4 to 24 examples"
    )
    assert "Not included: reading data, cards that are slower at times, checkpoints" in lines[3]
    assert lines[-1] == f"Next: hocket rent {BRANCHES} --offers offers.csv --examples 4k --plot rent.html"
    assert hocket("rent", BRANCHES, *JOB, "-q").out.splitlines() == lines[:3]


def test_json_is_one_document_with_the_rows_and_what_was_assumed() -> None:
    ran = hocket("rent", BRANCHES, *JOB, "--deadline", "90min", "--budget", "50", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert list(found) == [
        *("model", "job", "currency", "answer", "cheapest", "fastest", "offers", "front", "rows", "assumed"),
        *("left_out", "not_included"),
    ]
    assert found["job"] == {
        "examples": 4000.0,
        "global_batch": None,
        "accumulate": None,
        "deadline_s": 5400.0,
        "budget": 50.0,
    }
    assert [row["nodes"] for row in found["rows"]] == [1, 2, 3, 4, 1, 2, 3]
    assert found["cheapest"] == found["fastest"] == found["rows"][3]
    assert found["offers"][2]["left_out"].startswith("no step is for such a card")
    assert {row["meets"] for row in found["front"]} == {True, False}
    assert found["currency"] == "USD"


def test_a_model_is_derived_for_each_offers_card() -> None:
    Path("gpus.csv").write_text(
        "name,device,gpus,price_per_hour,most_nodes,bandwidth\n"
        "a,V100,1,3,2,10Gbit/s\nb,a100,1,4,1,\nc,k80,1,1,1,\n"
    )
    model = ("alexnet_v2", "--batch-size", "16", "--precision", "amp")
    ran = hocket("rent", *model, "--offers", "gpus.csv", "--epochs", "2", "--dataset-size", "1.28M", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert [(row["offer"], row["device"], row["batch_size"]) for row in found["rows"]] == [
        *(("a", "v100", 16), ("a", "v100", 16), ("b", "a100", 16))
    ]
    assert all(row["hours_low"] < row["hours"] < row["hours_high"] for row in found["rows"])
    why = [each["left_out"] for each in found["offers"]]
    assert why[2].startswith("precision amp: k80 has no units for it")


def test_a_global_batch_is_divided_and_its_smaller_steps_derived() -> None:
    Path("gpus.csv").write_text(
        "name,device,gpus,price_per_hour,most_nodes,bandwidth\na,a100,1,4,4,10Gbit/s\n"
    )
    model = ("alexnet_v2", "--batch-size", "16", "--global-batch", "32", "--steps", "1k")
    ran = hocket("rent", *model, "--offers", "gpus.csv", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert [(row["nodes"], row["batch_size"], row["accumulate"], row["steps"]) for row in found["rows"]] == [
        *((1, 16, 2, 1000), (2, 16, 1, 1000), (4, 8, 1, 1000))
    ]
    assert found["offers"][0]["nodes_left_out"] == [3]
    assert found["left_out"] == [
        "Left out: 1 number of nodes of a, whose cards cannot share 32 examples in equal"
        " batches that fit and are no larger than --batch-size"
    ]


def test_wide_shows_every_row_and_a_page_is_written() -> None:
    ran = hocket("rent", BRANCHES, *JOB, "--wide", "--plot", "rent.html")
    assert ran.status == 0, ran.err
    assert "Every offer and number of nodes:" in ran.out
    assert sum(line.startswith(("fast ", "slow ")) for line in ran.out.splitlines()) == 7 + 2
    assert "Next:" not in ran.out
    assert "</html>" in Path("rent.html").read_text()
    assert "rent.html: open it in a browser" in ran.err


def test_an_example_of_offers_is_printed() -> None:
    ran = hocket("rent", "--example-offers")
    assert (ran.status, ran.out) == (0, example_offers())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((BRANCHES, "--offers", "offers.csv"), "no --examples, --epochs or --steps: the job is one of them"),
        ((BRANCHES, *JOB, "--epochs", "2"), "--examples and --epochs: the job is one of them"),
        ((BRANCHES, "--offers", "offers.csv", "--epochs", "2"), "--epochs 2: of what size is not said"),
        ((BRANCHES, *JOB, "--dataset-size", "1M"), "--dataset-size 1M: it is of --epochs"),
        (
            (BRANCHES, "--offers", "offers.csv", "--steps", "9"),
            "--steps 9: without --global-batch, more cards",
        ),
        ((BRANCHES, "--offers", "offers.csv", "--examples", "0"), "examples 0 is not above 0"),
        ((BRANCHES, "--offers", "offers.csv", "--examples", "-5"), "examples -5 is not above 0"),
        (
            (BRANCHES, "--offers", "offers.csv", "--examples", "1B"),
            "examples '1B' is not a number; write 1.2G",
        ),
        (
            (BRANCHES, *JOB, "--deadline", "24"),
            "deadline '24' is not a time with one of the units s, m, min, h",
        ),
        ((BRANCHES, *JOB, "--deadline", "0h"), "deadline 0h is not above 0"),
        ((BRANCHES, *JOB, "--budget", "-1"), "budget -1 is not above 0"),
        ((BRANCHES, *JOB, "--budget", "nan"), "budget 'nan' is not a number"),
        ((BRANCHES, *JOB, "--global-batch", "0"), "global batch 0 is not above 0"),
        ((BRANCHES, *JOB, "--accumulate", "0"), "accumulate 0 is not above 0"),
        (
            (BRANCHES, *JOB, "--global-batch", "7"),
            "no offer is left: fast (toy): the global batch of 7 is in no parts of 4 examples",
        ),
        ((BRANCHES, *JOB, "--precision", "amp"), "--precision amp: a step's file has its own"),
        ((BRANCHES, "alexnet_v2", *JOB), "alexnet_v2 is no step's file"),
        (("alexnet_v2", "vgg_16", *JOB), "alexnet_v2 and vgg_16: give one model"),
        (("alexnet", *EXAMPLE), "model 'alexnet' is unknown; did you mean 'alexnet_v2'"),
        (("alexnet_v2", *JOB), "offer 'fast': device 'toy' is unknown; choose one of: k80, p100, v100"),
        ((BRANCHES, BRANCHES, *JOB), "two steps are for toy with batches of 4; give one of them"),
        (
            (BRANCHES, "--offers", "nowhere.csv", "--examples", "1"),
            "No such file or directory; hocket rent --example-offers prints one",
        ),
        ((BRANCHES, *JOB, "--json", "--wide"), "--wide is for the table"),
        ((BRANCHES, *JOB, "--plot", "offers.csv"), "offers.csv"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("rent", *arguments))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90M", 90e6), ("1.28M", 1.28e6), ("90e6", 90e6), ("1_281_167", 1281167), ("1,000", 1000), ("2 k", 2e3)],
)
def test_amounts_are_read(text: str, expected: float) -> None:
    assert amount(text, "examples") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "M", "1,00", "0x1", "nan", "inf", "1e400", "9" * 40, "1Ki"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(HocketError, match="is not a number"):
        amount(text, "examples")


def test_long_times_are_read() -> None:
    texts = ("24h", "90min", "5m", "3d", "3600s", "1.5 hours", "2 days")
    seconds = [86400, 5400, 300, 259200, 3600, 5400, 172800]
    assert [long_duration(text, "deadline") for text in texts] == seconds
    with pytest.raises(HocketError, match=r"write e\.g\. 24h"):
        long_duration("5w", "deadline")
