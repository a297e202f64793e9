"""Files of offers: what reads, and what is refused with the line, the column and the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.errors import FormatError, HocketError
from hocket.offers import Offer, load_offers
from hocket.offers.node_network import network_of
from hocket.offers.offers_file import example_offers

ROOT = Path(__file__).parents[3]
HEADER = "name,device,gpus,price_per_hour,most_nodes,bandwidth"
ROW = "a,H100,8,24,2,400Gbit/s"


def read(folder: Path, *lines: str) -> list[Offer]:
    path = folder / "offers.csv"
    path.write_text("\n".join(lines))
    return load_offers(path)


def test_offers_are_read_with_comments_spaces_and_other_columns(tmp_path: Path) -> None:
    (offer,) = read(
        tmp_path,
        "# mine",
        "",
        "Name, device ,gpus,price per hour,currency,nics,bandwidth,intra_bandwidth,latency,most_nodes,region",
        "a, NVIDIA A100-SXM4-80GB ,8,14.5,EUR,4,100 Gbit/s,300GB/s,5us,16.0,north",
    )
    assert (offer.name, offer.card, offer.gpus, offer.price_per_hour) == ("a", "a100-80gb", 8, 14.5)
    assert (offer.currency, offer.nics, offer.bandwidth_bps, offer.intra_bps) == ("EUR", 4, 100e9, 2400e9)
    assert (offer.latency_s, offer.most_nodes) == (pytest.approx(5e-6), 16)
    assert offer.machines(2) == "16 a100-80gb in 2 nodes"


def test_the_example_that_is_shipped_reads_and_stands_among_the_examples() -> None:
    offers = load_offers(ROOT / "examples" / "offers.csv")
    assert example_offers() == (ROOT / "examples" / "offers.csv").read_text()
    assert "PRICES ARE MADE UP" in example_offers()
    assert {"h100", "h200", "b200", "a100-80gb", "l4"} <= {offer.card for offer in offers}
    for offer in offers:
        assert network_of(offer).nodes is not None


def test_comments_below_the_header_are_none_of_the_offers_and_a_quoted_name_may_begin_as_they_do(
    tmp_path: Path,
) -> None:
    found = read(
        tmp_path, HEADER, f"# {ROW}", "#see, below", "#", f'"#1"{ROW[1:]}', f"#{ROW.replace(',', ' ')}"
    )
    assert [offer.name for offer in found] == ["#1"]


def test_currencies_are_one_in_any_case(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER},currency", f"{ROW},USD", f"b{ROW[1:]},usd")
    assert [offer.currency for offer in found] == ["USD", "usd"]


def test_what_an_offer_leaves_out_is_the_datasheets_or_assumed() -> None:
    offer = Offer(name="a", device="l40s", gpus=4, price_per_hour=4, most_nodes=2, bandwidth_bps=1e10)
    network = network_of(offer)
    assert network.startup_s == 10e-6
    assert network.nodes is not None
    assert network.nodes.intra_bps == 8 * 32e9
    unknown = Offer(name="a", device="mycard", gpus=4, price_per_hour=4, most_nodes=1)
    with pytest.raises(
        HocketError, match="nothing says what connects the 4 mycard of a node; give intra_ban"
    ):
        network_of(unknown)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no offer; begin with a line name,device,gpus"),
        (["# only this"], "holds no offer"),
        ([HEADER], "holds no offer below its header"),
        (
            ["name,device,gpus,price,most_nodes", "a,h100,8,24,1"],
            "line 1: needs a column 'price_per_hour'; is",
        ),
        (["name,device,gpus,most_nodes", "a,h100,8,1"], "needs a column 'price_per_hour'; columns are name,"),
        ([HEADER.replace("bandwidth", "bandwith"), ROW], "line 1: column 'bandwith': call it 'bandwidth'"),
        ([f"{HEADER},gpus", f"{ROW},8"], "line 1: has the column 'gpus' twice"),
        ([HEADER, f"{ROW},extra"], "line 2: has 7 cells, its header 6"),
        (
            ["# it", HEADER, "", "a,h100,8,-24,2,1Gbit/s"],
            "line 4: price_per_hour -24.0 is not a price from 1e-6 to 1e9; give that of one node, e.g. 24",
        ),
        ([HEADER, "a,h100,8,0,2,1Gbit/s"], "line 2: price_per_hour 0.0 is not a price from 1e-6"),
        ([HEADER, "a,h100,8,nan,2,1Gbit/s"], "line 2: price_per_hour nan is not a price from 1e-6"),
        ([HEADER, "a,h100,8,free,2,1Gbit/s"], "line 2: price_per_hour 'free' is not a number"),
        ([HEADER, "a,h100,8,,2,1Gbit/s"], "line 2: price_per_hour '' is not a number"),
        ([HEADER, "a,h100,8,24,-2,1Gbit/s"], "line 2: most_nodes -2 is not a whole number from 1 to 4096"),
        ([HEADER, "a,h100,8,24,1.5,1Gbit/s"], "line 2: most_nodes 1.5 is not a whole number from 1 to 4096"),
        ([HEADER, "a,h100,inf,24,2,1Gbit/s"], "line 2: gpus inf is not a whole number from 1 to 64"),
        ([HEADER, "a,h100,8,24,2,"], "line 2: bandwidth: missing, and 2 nodes need one between them"),
        ([HEADER, "a,h100,8,24,2,400"], "line 2: bandwidth: bandwidth '400' has no unit; write 400Gbit/s or"),
        ([HEADER, "a,h100,8,24,2,-1Gbit/s"], "line 2: bandwidth: bandwidth '-1Gbit/s' is not positive"),
        ([HEADER, ",h100,8,24,2,1Gbit/s"], "line 2: name '' says nothing"),
        ([HEADER, ROW, ROW], "two offers are called 'a'; give each a name of its own"),
        (
            [f"{HEADER},currency", f"{ROW},USD", f"b{ROW[1:]},EUR"],
            "prices are in 'EUR' and 'USD': they cannot be compared",
        ),
        (
            [HEADER, '"a,h100,8,24,2,1Gbit/s', ROW],
            "line 2: is not CSV: unexpected end of data; close each quote on its line",
        ),
        ([HEADER, '"a"b,h100,8,24,2,'], "line 2: is not CSV: ',' expected after '\"'; close each quote"),
        (
            [HEADER, f"\x1b[31m{ROW}"],
            r"line 2: name '\x1b[31ma' has characters that cannot be printed; leave",
        ),
        ([HEADER, f"a\0{ROW}"], "line 2: "),
        ([HEADER, f"b\u2028{ROW}"], r"line 2: name 'b\u2028a' has characters that cannot be printed"),
        ([HEADER, "a,h\x9b100,8,24,1,"], r"line 2: device 'h\x9b100' has characters that cannot be printed"),
        (
            [f"{HEADER},currency", f"{ROW},U\x1bSD"],
            r"currency 'U\x1bSD' has characters that cannot be printed",
        ),
        (
            [HEADER, f"{60 * 'n'}{ROW}"],
            f"name '{60 * 'n'}...' has 61 characters, and may have 60; shorten it",
        ),
        ([f"{HEADER},currency", f"{ROW},US dollars!"], "'US dollars...' has 11 characters, and may have 10"),
        (
            [HEADER, "a,h100,8,$24,1,"],
            "price_per_hour '$24' is not a number; give e.g. 24.0, without a currency",
        ),
        (
            [HEADER, "a,h100,8,\u0662\u0664,1,"],
            "price_per_hour '\u0662\u0664' is not a number; give e.g. 24.0",
        ),
        ([HEADER, "a,h100,8,1_000,1,"], "line 2: price_per_hour '1_000' is not a number; give e.g. 24.0"),
        ([HEADER, "a,h100,8,1e-320,1,"], "line 2: price_per_hour 1e-320 is not a price from 1e-6 to 1e9"),
        ([HEADER, 'a,h100,8,"1,000",1,'], "price_per_hour '1,000' is not a number; leave out the comma"),
        ([HEADER, "a,h100,1_6,24,1,"], "line 2: gpus '1_6' is not a number; give e.g. 8"),
        (
            [HEADER.replace(",", ";")],
            "line 1: needs a column 'name'; separate cells by commas, not by semicol",
        ),
        ([HEADER.replace(",", "\t")], "line 1: needs a column 'name'; separate cells by commas, not by tabs"),
        (
            [HEADER, ROW.replace(",", ";")],
            "line 2: has 1 cell, its header 6; separate cells by commas, quote",
        ),
        (
            [HEADER, f"{ROW}\n #b,h100,8,24,1,"],
            """line 3: '#b' may begin an offer or a comment; write "#b" in quo""",
        ),
        (
            [f"{HEADER},currency", f"{ROW},", f"b{ROW[1:]},USD"],
            "prices are in '' and 'USD': they cannot be compared; fill currency in in every row or in none",
        ),
        ([HEADER, *10_001 * [ROW]], "holds 10001 offers, and may hold 10000; leave the others out"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(FormatError) as raised:
        read(tmp_path, *lines)
    assert str(raised.value).startswith(f"{tmp_path}/offers.csv: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
