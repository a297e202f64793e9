"""Answers in a sentence say what their rows say: never faster where slower, ties as ties."""

import re

import pytest
from fake_runs import fake_row
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Plan, Reduction
from hocket.report.compared_rows import LITTLE, gained, gains, usual_row
from hocket.report.comparison import ComparedRun, ComparedTime, Comparison, OneSided
from hocket.report.verdicts import (
    best_buckets,
    clipping_verdict,
    comparison_verdict,
    halves_verdict,
    on_workers,
    ranking_remarks,
    ranking_verdict,
    result_verdict,
)

WHERE = "on 4 workers at 1 Gbit/s"
TIMES = st.floats(1e-4, 1e4)


def reduced(policy, iteration_s, bound_s=0.0, **changes):
    changes = {"iteration_s": iteration_s, "bound_s": bound_s, "architecture": "allreduce", **changes}
    return fake_row(policy, servers=0, **changes)


def test_a_bound_that_counts_no_waits_says_so_where_workers_wait():
    assert result_verdict(reduced("caramel", 1.0, 0.8, straggler_fraction=0.29), None, WHERE).endswith(
        ". No order of as many transfers takes less than 0.8 s, even if no worker waited for another (the"
        " first to end a step waits for the last, here 29% of a step on average)"
    )
    assert result_verdict(reduced("caramel", 1.0, 0.8, straggler_fraction=0.09), None, WHERE).endswith(
        " less than 0.8 s"
    )
    assert " less than 0.8 s, even if no worker waited " in result_verdict(
        reduced("caramel", 1.0, 0.8, straggler_fraction=0.29), reduced("ddp", 1.1), WHERE
    )


@pytest.mark.parametrize(("best", "said"), [("search", ", none searched for"), ("caramel", "")])
def test_unclipped_and_whole_reductions_that_no_search_was_made_for_are_told_so(best, said):
    of = {"architecture": "allreduce", "model": "toy", "compute_order": ()}
    halved = Plan(policy="search", reductions=(Reduction(parameters=("a",), halves=True),), **of)
    whole = Plan(policy="ddp", reductions=(Reduction(parameters=("a",)),), **of)
    rows = [reduced(best, 0.9), reduced("ddp", 1.0)]
    assert f" (ddp, whole reductions{said}), " in clipping_verdict(rows, reduced("ddp", 1.1))
    assert halves_verdict(rows, {best: halved, "ddp": whole}).endswith(f" (ddp{said})")


def test_where_ddps_best_bucket_is_best_the_script_keeps_ddp():
    buckets = reduced("ddp-best", 1.0, bucket_bytes=5 << 20)
    line = "DistributedDataParallel(model, bucket_cap_mb=5)  # in your script"
    assert best_buckets([buckets]) == best_buckets([reduced("caramel", 0.98), buckets]) == line
    assert best_buckets([reduced("caramel", 0.96), buckets]) == best_buckets([reduced("caramel", 1.0)]) == ""


def test_a_result_is_told_beside_the_usual_policy_and_the_least_possible():
    row, ddp = reduced("caramel", 0.953, 0.855), reduced("ddp", 1.224)
    assert result_verdict(row, ddp, WHERE) == (
        "caramel: 0.953 s a step on 4 workers at 1 Gbit/s, 22% less than ddp (buckets of 25"
        " MiB). No order of as many transfers takes less than 0.855 s, 30% less than ddp"
    )
    bounded = reduced("ddp", 1.224, 0.855)
    assert result_verdict(bounded, bounded, WHERE).endswith(
        " Gbit/s. The best possible order of as many transfers would save at most 30% (0.855 s)"
    )
    assert result_verdict(ddp, ddp, WHERE) == "ddp: 1.22 s a step on 4 workers at 1 Gbit/s"
    assert result_verdict(row, None, WHERE).startswith("caramel: 953 ms a step on")
    slower = reduced("wfbp", 2.0, 2.0)
    assert result_verdict(slower, ddp, WHERE) == (
        "wfbp: 2 s a step on 4 workers at 1 Gbit/s, 63% more than ddp (buckets of 25 MiB),"
        " and no order of as many transfers takes less"
    )
    exact = reduced("exact", 1.2241, status="optimal")
    assert result_verdict(exact, ddp, WHERE).startswith("exact (optimal): 1.22 s a step ")
    assert result_verdict(exact, ddp, WHERE).endswith(", as long as ddp (buckets of 25 MiB)")


DDP = "ddp (buckets of 25 MiB)"


UNEVEN = (
    ". The profile's steps differ, and with them it takes 867 ms: the first worker to end a step waits for"
    " the last, 34% of a step on average"
)


def uneven(**changes):
    return reduced("caramel", 0.867, 0.8, straggler_fraction=0.34, **changes)


@pytest.mark.parametrize(
    ("alike_s", "said"),
    [
        (
            {"ddp": 1.0, "caramel": 0.984},
            f"984 ms a step {WHERE} if all steps were alike, 1.6% less than {DDP}",
        ),
        (
            {"ddp": 1.0, "caramel": 1.02},
            f"1020 ms a step {WHERE} if all steps were alike, 2% more than {DDP}",
        ),
        ({"ddp": 1.0, "caramel": 1.0}, f"1000 ms a step {WHERE} if all steps were alike, no less than {DDP}"),
    ],
)
def test_a_gain_from_steps_of_unlike_length_is_told_apart(alike_s, said):
    rows = [uneven(), reduced("ddp", 0.944)]
    assert ranking_verdict(rows, WHERE, alike_s) == f"best of 2 policies: caramel, {said}{UNEVEN}"


@pytest.mark.parametrize(
    ("alike_s", "drawn"),
    [({"ddp": 1.0, "caramel": 0.93}, " with steps as uneven as the profile's"), ({}, "")],
)
def test_a_gain_that_steps_of_unlike_length_make_no_larger_is_told_as_it_is(alike_s, drawn):
    said = ranking_verdict([uneven(), reduced("ddp", 0.944)], WHERE, alike_s, 0.9)
    assert f": caramel, 867 ms a step {WHERE}{drawn}, 8.2% less than {DDP}. No order of as many " in said
    assert " less than 800 ms, even if no worker waited " in said


@pytest.mark.parametrize(
    ("bound_s", "said"),
    [
        (0.9, "; no order of as many transfers takes less then than 900 ms, 10% less than ddp"),
        (1.0, "; no order of as many transfers takes less then than 1000 ms"),
        (0.984, ", and no order of as many transfers takes less"),
        (0.0, ""),
    ],
)
def test_beside_a_step_as_if_all_were_alike_the_least_is_of_such_a_step(bound_s, said):
    rows = [uneven(), reduced("ddp", 0.944)]
    told = ranking_verdict(rows, WHERE, {"ddp": 1.0, "caramel": 0.984}, bound_s)
    assert told.endswith(f", 1.6% less than {DDP}{said}{UNEVEN}")


def test_the_gain_over_ddps_best_bucket_from_steps_of_unlike_length_is_told_apart():
    rows = [uneven(), reduced("ddp", 0.944), reduced("ddp-best", 0.9, bucket_bytes=1 << 20)]
    assert ranking_verdict(rows, WHERE, {"ddp": 1.0, "caramel": 0.984, "ddp-best": 0.99}).endswith(
        f" if all steps were alike, 1.6% less than {DDP}, 0.61% less than ddp's best bucket (1 MiB){UNEVEN}"
    )


def test_gains_in_one_sentence_are_all_as_drawn_or_all_as_if_steps_were_alike():
    rows = [uneven(), reduced("ddp", 0.944), reduced("ddp-best", 0.9, bucket_bytes=1 << 20)]
    one_made_up = {"ddp": 1.0, "caramel": 0.93, "ddp-best": 0.935}
    assert ranking_verdict(rows, WHERE, one_made_up).endswith(
        f" if all steps were alike, 7% less than {DDP}, 0.53% less than ddp's best bucket (1 MiB){UNEVEN}"
    )
    assert not [said for said in ranking_remarks(rows, one_made_up) if said.startswith("If all steps")]
    none_made_up = {"ddp": 1.0, "caramel": 0.93, "ddp-best": 0.97}
    assert f". That is 8.2% less than {DDP}, 3.7% less than ddp's best bucket (1 MiB). " in ranking_verdict(
        rows, WHERE, none_made_up
    )
    assert "If all steps were alike: 7% less than ddp and 4.1% less than ddp-best" in " ".join(
        ranking_remarks(rows, none_made_up)
    )


def test_a_gain_that_is_made_of_uneven_steps_is_not_to_go_by():
    rows = [reduced("caramel", 0.867), reduced("ddp", 0.944)]
    remark = "Much of the table's gain comes of steps that differ"
    for alike_s, times in (({"ddp": 1.0, "caramel": 0.984}, 1), ({"ddp": 1.0, "caramel": 0.93}, 0), ({}, 0)):
        remarks = ranking_remarks(rows, alike_s)
        assert sum(said.startswith(remark) for said in remarks) == times
    kept = ranking_remarks(
        [*rows, reduced("ddp-best", 0.9, bucket_bytes=1 << 20)], {"ddp": 1.0, "caramel": 0.93}
    )
    assert kept[1] == "If all steps were alike: 7% less than ddp"
    level = [reduced("caramel", 0.94399), reduced("ddp", 0.944)]
    assert not ranking_remarks(level, {"ddp": 1.0, "caramel": 1.0})[1:]
    assert not ranking_remarks([reduced("caramel", 0.867)], {"caramel": 1.0})[1:]


def test_a_ranking_tells_rho_and_a_bucket_size_that_gains_nearly_as_much():
    best, ddp = reduced("caramel", 0.85, rho=0.434), reduced("ddp", 1.07)
    rho = "Rho 0.43: a step's transfers, by caramel, take 0.43 times as long as its computing"
    bucket = "DistributedDataParallel(model, bucket_cap_mb=1) gains nearly as much as the best plan"

    def buckets(iteration_s):
        return reduced("ddp-best", iteration_s, bucket_bytes=1 << 20)

    assert ranking_remarks([best, ddp]) == ranking_remarks([best, ddp, buckets(0.9)]) == [rho]
    assert ranking_remarks([best, ddp, buckets(0.858)]) == [rho, bucket]
    few = reduced("caramel", 1.03, rho=0.434)
    assert ranking_remarks([few, ddp, buckets(1.04)]) == [rho, bucket]
    assert ranking_remarks([few, ddp, buckets(1.06)]) == [rho]  # a quarter of the gain is not nearly all
    level = reduced("caramel", 1.06, rho=0.434)
    assert ranking_remarks([level, ddp, buckets(1.07)]) == [rho]
    assert ranking_remarks([level, ddp, buckets(1.062)]) == [rho]  # of a gain that is none


def test_a_ranking_names_its_best_those_level_with_it_and_what_is_usual():
    ddp = reduced("ddp", 1.2)
    assert ranking_verdict([reduced("search", 0.9), ddp], WHERE) == (
        "best of 2 policies: search (a plan found by changing theirs), 0.9 s a step on 4 workers at 1 Gbit/s,"
        " 25% less than ddp (buckets of 25 MiB)"
    )
    level = [reduced(name, 0.9) for name in ("search", "exact", "caramel", "wfbp", "horovod")]
    none_better = "(search found none better), 0.9 s"
    assert ranking_verdict([*level[:2], ddp], WHERE).startswith(f"best of 3 policies: exact {none_better}")
    assert ranking_verdict([*level[1:3], ddp], WHERE).startswith(
        "best of 3 policies: exact and caramel alike, 0.9 s"
    )
    assert ranking_verdict([*level, ddp], WHERE).startswith(
        f"best of 6 policies: exact and 3 others alike {none_better}"
    )
    assert ranking_verdict([reduced("search", 1.2), ddp], WHERE) == (
        "no other policy beats ddp: 1.2 s a step on 4 workers at 1 Gbit/s"
    )
    assert not gains([reduced("search", 1.2), ddp])
    assert not gains([reduced("search", 1.17), ddp])
    assert gains([reduced("search", 1.1), ddp])
    assert gained([reduced("search", 0.9), ddp]) == pytest.approx(0.25)
    assert gained([reduced("search", 1.2), ddp]) == gained(level) == 0.0
    assert gains(level)


def best_bucket(iteration_s, mib):
    return reduced("ddp-best", iteration_s, bucket_bytes=mib << 20)


def test_a_ranking_tells_its_gain_over_ddp_with_its_best_bucket_apart():
    slices, ddp = reduced("bytescheduler", 0.272), reduced("ddp", 0.359)
    assert ranking_verdict([slices, reduced("search", 0.272), best_bucket(0.289, 1), ddp], WHERE) == (
        "best of 4 policies: bytescheduler (search found none better), 272 ms a step on 4 workers at 1 Gbit/s"
        ". That is 24% less than ddp (buckets of 25 MiB), 5.9% less than ddp's best bucket (1 MiB)"
    )
    assert best_bucket(0.289, 1).title == "ddp-best (1 MiB)"


def test_a_ranking_says_where_no_other_bucket_size_is_better_than_ddps_default():
    slices, ddp = reduced("bytescheduler", 0.272), reduced("ddp", 0.359)
    for mib in (25, 5):  # ... or one is as good
        assert ranking_verdict([slices, ddp, best_bucket(0.359, mib)], WHERE) == (
            "best of 3 policies: bytescheduler, 272 ms a step on 4 workers at 1 Gbit/s, 24% less than ddp"
            " (buckets of 25 MiB, its best size)"
        )
    assert ranking_verdict([reduced("wfbp", 0.4), ddp, best_bucket(0.359, 25)], WHERE) == (
        "no other policy beats ddp: 359 ms a step on 4 workers at 1 Gbit/s"
    )


def test_nothing_to_gain_is_said_where_the_bound_proves_it():
    ddp, buckets = reduced("ddp", 0.359, 0.289), reduced("ddp-best", 0.289, 0.289, bucket_bytes=5 << 20)
    least = "and no order of as many transfers takes less"
    assert ranking_verdict([buckets, ddp], WHERE) == (
        f"nothing to gain over DDP with 5 MiB buckets (bucket_cap_mb=5): 289 ms a step {WHERE},"
        f" 19% less than {DDP}, {least}"
    )
    fsdp, tic = (reduced(name, 0.877, 0.874, architecture="fsdp") for name in ("fsdp", "fsdp-tic"))
    assert ranking_verdict([fsdp, tic], WHERE) == (
        f"no other policy beats fsdp: 877 ms a step {WHERE}. The best possible order of as many transfers"
        " would save at most 0.34% (874 ms)"
    )


def test_a_ranking_says_where_another_bucket_size_is_all_there_is_to_gain():
    ddp, buckets = reduced("ddp", 0.359), best_bucket(0.289, 5)
    for others in ([], [reduced("caramel", 0.289), reduced("search", 0.289)]):
        rows = [*others, buckets, ddp]
        assert gains(rows)
        assert ranking_verdict(rows, WHERE) == (
            f"best of {len(rows)} policies: DDP with 5 MiB buckets (bucket_cap_mb=5), 289 ms a step on 4"
            " workers at 1 Gbit/s, 19% less than ddp (buckets of 25 MiB)"
        )


def test_servers_are_compared_with_parameters_in_file_order():
    rows = [fake_row("tac", iteration_s=0.3), fake_row("fifo", iteration_s=0.4)]
    assert usual_row(rows) is rows[1]
    assert on_workers(rows[0], "1 Gbit/s") == "on 4 workers and 1 server at 1 Gbit/s"
    assert usual_row(rows[:1]) is None


@given(ours=TIMES, theirs=TIMES, bound=st.floats(0.0, 1.0))
def test_a_result_says_less_where_it_is_and_its_share(ours, theirs, bound):
    row, ddp = reduced("caramel", ours, bound * ours), reduced("ddp", theirs)
    said = result_verdict(row, ddp, WHERE)
    compared = re.search(r", (?:(\S+)% (less|more) than|as long as) ddp", said)
    ratio = ours / theirs
    if compared[2] is None:
        assert ratio == pytest.approx(1.0, rel=1e-3)
    else:
        assert (compared[2] == "less") == (ours < theirs)
        assert float(compared[1]) == pytest.approx(100 * abs(ratio - 1), rel=0.06, abs=0.51)
    if "the least that any order" in said:
        assert bound >= 1 - 6e-4
    elif over := re.search(r"at most (\S+)% over", said):
        assert float(over[1]) == pytest.approx(100 * (1 / bound - 1), rel=0.06, abs=0.51)


@given(parts=st.lists(TIMES | st.floats(0.9, 1.1), min_size=1, max_size=8), usual=TIMES)
def test_a_ranking_claims_a_gain_only_where_there_is_one(parts, usual):
    times = [part * usual for part in parts]
    rows = [*(reduced(f"p{k}", time_s) for k, time_s in enumerate(times)), reduced("ddp", usual)]
    said, best_s = ranking_verdict(rows, WHERE), min(*times, usual)
    assert (gained(rows) > 0.0) == said.startswith("best of ")
    assert gains(rows) == (gained(rows) > LITTLE)
    if said.startswith("no other policy beats ddp"):
        assert usual <= best_s * (1 + 6e-4)
    else:
        assert " less than ddp" in said
        assert min(times) < usual
        (named,) = re.findall(r"policies: (p\d)", said)
        assert times[int(named[1:])] <= best_s * (1 + 6e-4)
        assert all(times[int(name[1:])] <= best_s * (1 + 6e-4) for name in re.findall(r"p\d", said))


def comparison(**seconds):
    run = ComparedRun(title="t", workers=1, steps=1, anchor="a")
    nothing = OneSided(count=0, examples=(), names=0, reasons=())
    figures = tuple(
        ComparedTime(name=name, predicted_s=ours, measured_s=theirs, ratio=None)
        for name, (ours, theirs) in seconds.items()
    )
    return Comparison(
        predicted=run, measured=run, figures=figures, spans=(), only_predicted=nothing, only_measured=nothing
    )


def test_a_comparison_says_what_the_difference_is_made_of():
    found = comparison(step=(1.0, 1.2), computing=(0.6, 0.55), waiting=(0.4, 0.65))
    assert comparison_verdict(found) == (
        "A measured step takes 1.2 s, 20% more than predicted (1 s): 50 ms less computing and "
        "250 ms more waiting"
    )
    same = comparison(step=(1.0, 1.0), computing=(0.6, 0.6), waiting=(0.4, 0.4))
    assert comparison_verdict(same) == "A measured step takes 1 s, as predicted"


@given(ours=TIMES, theirs=TIMES)
def test_a_comparison_says_more_where_it_is(ours, theirs):
    said = comparison_verdict(comparison(step=(ours, theirs)))
    if "as predicted" not in said:
        assert ("more than predicted" in said) == (theirs > ours)
