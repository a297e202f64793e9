"""Our training against DistributedDataParallel's: the same parameters, buffers and optimizer state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess.below_cases import CASES as BELOW_CASES
from tests.multiprocess.buffer_cases import CASES as BUFFER_CASES
from tests.multiprocess.gradient_cases import CASES as GRADIENT_CASES
from tests.multiprocess.held_cases import CASES as HELD_CASES
from tests.multiprocess.launch import run
from tests.multiprocess.member_cases import CASES as MEMBER_CASES
from tests.multiprocess.moment_cases import CASES as MOMENT_CASES
from tests.multiprocess.odd_cases import CASES as ODD_CASES
from tests.multiprocess.optimizer_cases import OPTIMIZERS
from tests.multiprocess.script_cases import CASES as SCRIPT_CASES

CASES = "tests.multiprocess.training_cases"
OPTIMIZER_CASES = "tests.multiprocess.optimizer_cases"


@pytest.fixture(scope="module", params=[False, True], ids=["eager", "compiled"])
def of_optimizers(request: pytest.FixtureRequest) -> list[dict[str, list[str]]]:
    return run(f"{OPTIMIZER_CASES}:optimizers", compiled=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_and_scheduler_are_bitwise_those_of_ddp(of_optimizers: Any, name: str) -> None:
    assert [found[name] for found in of_optimizers] == [[], []]


@pytest.mark.slow
def test_compiled_backward_passes_in_the_plans_order_are_bitwise_ddps() -> None:
    assert run(f"{OPTIMIZER_CASES}:compiled_auto") == [[], []]


@pytest.mark.slow
def test_parameters_of_compiled_models_may_be_changed_between_steps() -> None:
    assert run(f"{OPTIMIZER_CASES}:compiled_weights_clamped") == [[], []]


PARITY = [
    "unlike_at_the_start",
    "accumulation",
    "accumulation_without_no_sync",
    "clipping_by_norm",
    "clipping_by_torch",
    "clipping_by_value",
    "scaler_and_autocast",
    "parameter_groups",
    "several_optimizers",
    "unused_parameters",
    "shared_frozen_functional",
    "batch_norm_statistics",
    "evaluation_on_one_rank",
    "state_at_any_moment",
    "copies",
    "averaged_parameters",
    "step_hooks",
    "closures",
    "zeroed_gradients",
    "gradients_that_are_read",
    "auto",
    "detached",
    "checkpointing reentrant=False shared=False",
    "checkpointing reentrant=False shared=True",
    "checkpointing reentrant=True shared=False",
    "checkpointing reentrant=True shared=True",
]


@pytest.fixture(scope="module")
def of_cases() -> list[dict[str, list[str]]]:
    found = run("tests.multiprocess.parity_cases:parity")
    assert sorted(found[0]) == sorted(PARITY)
    return found


@pytest.mark.parametrize("name", PARITY)
def test_what_a_user_of_ddp_has_is_bitwise_the_same(of_cases: Any, name: str) -> None:
    assert [found[name] for found in of_cases] == [[], []]


@pytest.fixture(scope="module")
def of_odd_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.script_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in ODD_CASES + SCRIPT_CASES])
def test_what_scripts_do_beside_the_loop_is_bitwise_the_same(of_odd_cases: Any, name: str) -> None:
    assert [found[name] for found in of_odd_cases] == [[], []]


@pytest.fixture(scope="module")
def of_held_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.held_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in HELD_CASES])
def test_what_is_held_by_other_names_is_bitwise_the_same(of_held_cases: Any, name: str) -> None:
    assert [found[name] for found in of_held_cases] == [[], []]


@pytest.fixture(scope="module")
def of_below_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.below_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in BELOW_CASES])
def test_readers_below_python_find_the_step(of_below_cases: Any, name: str) -> None:
    assert [found[name] for found in of_below_cases] == [[], []]


@pytest.fixture(scope="module")
def of_moment_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.moment_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in MOMENT_CASES])
def test_updates_at_odd_moments_are_bitwise_the_same(of_moment_cases: Any, name: str) -> None:
    assert [found[name] for found in of_moment_cases] == [[], []]


@pytest.fixture(scope="module")
def of_gradient_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.gradient_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in GRADIENT_CASES])
def test_gradients_of_odd_kinds_are_bitwise_the_same(of_gradient_cases: Any, name: str) -> None:
    assert [found[name] for found in of_gradient_cases] == [[], []]


@pytest.fixture(scope="module")
def of_buffer_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.buffer_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in BUFFER_CASES])
def test_buffers_are_bitwise_the_same_in_every_pass(of_buffer_cases: Any, name: str) -> None:
    assert [found[name] for found in of_buffer_cases] == [[], []]


@pytest.mark.slow
def test_a_pass_with_gradients_on_one_rank_alone_is_refused() -> None:
    assert run("tests.multiprocess.buffer_cases:of_a_pass_alone") == [[], []]


@pytest.fixture(scope="module")
def of_member_cases() -> list[dict[str, list[str]]]:
    return run("tests.multiprocess.member_cases:all_of_them")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.__name__ for case in MEMBER_CASES])
def test_ranks_have_the_same_parameters_or_one_line(of_member_cases: Any, name: str) -> None:
    assert [found[name] for found in of_member_cases] == [[], []]


def test_one_process_trains_as_without_us() -> None:
    assert run("tests.multiprocess.odd_cases:a_world_of_one", world=1) == [[]]


@pytest.mark.slow
def test_a_group_of_some_ranks_trains_alone() -> None:
    assert run(f"{CASES}:another_group", world=3) == [[], [], []]


@pytest.mark.slow
def test_two_groups_train_side_by_side() -> None:
    assert run(f"{CASES}:two_groups", world=4) == [[]] * 4


@pytest.mark.slow
@pytest.mark.parametrize("world", [3, 4])
def test_more_ranks_are_as_ddp_to_the_last_digits(world: int) -> None:
    assert run(f"{OPTIMIZER_CASES}:several_ranks", world=world) == [[]] * world
