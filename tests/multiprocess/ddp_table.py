"""Behaviours of DistributedDataParallel, row by row: the same here, or refused in one line.

``python -m tests.multiprocess.ddp_table`` prints docs/ddp.md. A row names the case that shows it, run by
one of test_training.py, test_join.py, test_sparse.py, test_short_gradients.py, test_surface.py and
test_ddp_table.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.multiprocess import below_cases as below
from tests.multiprocess import buffer_cases as buffers
from tests.multiprocess import ddp_cases as ddp
from tests.multiprocess import gradient_cases as gradients
from tests.multiprocess import held_cases as held
from tests.multiprocess import join_cases as joining
from tests.multiprocess import member_cases as members
from tests.multiprocess import moment_cases as moments
from tests.multiprocess import odd_cases as odd
from tests.multiprocess import parity_cases as parity
from tests.multiprocess import script_cases as scripts
from tests.multiprocess import short_cases as short
from tests.multiprocess import sparse_cases as sparse
from tests.multiprocess import surface_cases as surface
from tests.multiprocess import training_cases as training

SAME = "the same"
Case = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A behaviour, the case that shows it, and what happens here: the same, or what a refusal says to do."""

    behaviour: str
    case: Case
    here: str = SAME


def _refused(way: str) -> str:
    return f"refused: {way}"


TABLE: dict[str, tuple[Row, ...]] = {
    "Start": (
        Row("ranks begin with rank 0's parameters and buffers", training.unlike_at_the_start),
        Row("`broadcast_buffers=False` leaves buffers alone, at the start too", buffers.kept_apart),
        Row("`_ddp_params_and_buffers_to_ignore`", members.ignored_by_name),
        Row(
            "frozen parameters, shared weights within a model, weights that are read functionally",
            training.shared_frozen_functional,
        ),
        Row("a process group of some ranks, or several side by side", training.another_group),
        Row(
            "a model that is wrapped again, TorchScript, parameters without a shape",
            scripts.what_cannot_be_distributed,
            _refused("give the module itself, after a first pass"),
        ),
        Row(
            "a model that is sharded: FSDP, FSDP2 (`fully_shard`), tensor parallelism",
            scripts.what_is_parallel_already,
            _refused("train it without `hocket.distribute`"),
        ),
        Row(
            "two models that share trained parameters",
            members.shared_by_two_models,
            _refused("distribute one module of both"),
        ),
        Row(
            "an optimizer of none of the model's parameters (DDP does not look)",
            members.optimizers_of_other_models,
            _refused("give the model's optimizer"),
        ),
        Row(
            "a parameter added to the model later (DDP trains it on each rank alone)",
            members.a_parameter_added_later,
            _refused("detach, then distribute again"),
        ),
        Row("a parameter added to the optimizer later", members.a_parameter_added_to_the_optimizer),
    ),
    "Forward and backward passes": (
        Row("outputs in tuples, lists, dicts and dataclasses", ddp.outputs_in_containers),
        Row("outputs that take no part in the loss, on all ranks or on one", ddp.outputs_without_a_loss),
        Row("inputs in every form: containers, keywords, None", ddp.inputs_in_every_form),
        Row("a model without inputs", ddp.no_input),
        Row("parameters among the outputs", scripts.parameters_among_the_outputs),
        Row("the loss computed within the model", ddp.a_loss_within_the_model),
        Row("several forward passes before one backward pass", ddp.passes_before_one_backward_pass),
        Row("the same with BatchNorm", buffers.two_passes_before_one_backward),
        Row("forward and backward passes by turns", buffers.passes_and_backwards_by_turns),
        Row("a layer that runs twice in a pass", ddp.a_layer_that_runs_twice),
        Row("control flow that changes with the step", ddp.control_flow_that_changes_with_steps),
        Row("control flow that differs between ranks", ddp.control_flow_that_differs_between_ranks),
        Row("a gradient penalty: `create_graph=True`", ddp.gradient_penalty),
        Row("gradients by the input", ddp.gradients_by_the_input),
        Row("`torch.autograd.grad` by the parameters stays local", ddp.gradients_without_a_backward_pass),
        Row("autograd functions of the user's own", ddp.functions_of_their_own),
        Row("a backward function that returns no gradient", gradients.undefined),
        Row("checkpoints, reentrant or not, of shared parts too", parity.checkpointing),
        Row("recurrent layers, packed sequences", ddp.recurrent_layers),
        Row("dropout is each rank's own", ddp.dropout),
        Row("weights that the forward pass changes (`max_norm`)", ddp.weights_that_a_forward_pass_changes),
        Row("weight_norm, spectral_norm", ddp.parametrised_weights),
        Row("parameters in module lists, dicts and parameter lists", ddp.parameters_in_containers),
        Row("a part of a larger model", ddp.a_part_of_a_larger_model),
        Row("generator and discriminator, one frozen in the other's steps", ddp.two_models_of_one_loss),
        Row("a forward pass that raises, and training that goes on", held.a_pass_that_raised),
        Row(
            "a backward pass that raises after gradients have left (DDP fails in the next pass)",
            odd.an_aborted_backward_pass,
            _refused("start all ranks again from a checkpoint"),
        ),
        Row("`torch.func` transforms", scripts.transforms_of_functions),
        Row("parts that the user compiled", odd.compiled_by_the_user),
        Row(
            "`module` called with gradients on one rank alone, of a model with buffers",
            buffers.a_pass_on_one_rank_alone,
            _refused("under `torch.no_grad()`, or on all ranks"),
        ),
        Row("batches of other sizes on each rank", ddp.batches_of_other_sizes),
        Row("a rank that is slower", ddp.a_rank_that_is_slow),
    ),
    "Gradients": (
        Row("accumulation under `no_sync`", training.accumulation),
        Row("accumulation without it", training.accumulation_without_no_sync),
        Row("`require_backward_grad_sync`", surface.accumulation_by_the_flag),
        Row("`grad` between backward pass and step is the mean over ranks", training.gradients_that_are_read),
        Row("gradients that the script keeps, replaces or drops", odd.kept_gradients),
        Row("`zero_grad(set_to_none=False)`", training.zeroed_gradients),
        Row("unused parameters, also on one rank only", training.unused_parameters),
        Row("hooks on gradients and on parameters", odd.hooks_of_users),
        Row("hooks on modules, forward and backward", ddp.hooks_on_modules),
        Row(
            "a hook that drops a gradient before it is sent",
            scripts.gradients_dropped_in_a_hook,
            _refused("drop it when the pass is over"),
        ),
        Row("clipping by norm and by value", training.clipping_by_torch),
        Row("GradScaler and autocast", training.scaler_and_autocast),
        Row("sparse gradients", sparse.sparse_sgd),
        Row("sparse gradients that are dense in some steps", sparse.sparse_at_times),
        Row("complex parameters", sparse.complex_parameters),
        Row(
            "zero-dimensional parameters, parameters without elements, mixed types",
            sparse.kinds_of_parameters,
        ),
        Row("expanded and transposed gradients", sparse.gradients_of_odd_strides),
        Row("channels last", ddp.channels_last),
        Row("bfloat16", ddp.half_precision),
        Row("bfloat16, float32 and float64 in one model, with `bf16_compress_hook`", short.mixed_types),
        Row("autocast with `bf16_compress_hook`", short.autocast),
        Row("`fp16_compress_hook` and `bf16_compress_hook`, and torch's wrappers", short.registered),
        Row(
            "other communication hooks: PowerSGD, quantization, post-localSGD, a script's own",
            short.refusals,
            _refused("leave it out, or `gradient_dtype=torch.bfloat16`"),
        ),
        Row("float64", ddp.double_precision),
        Row("two thousand tiny parameters", ddp.two_thousand_parameters),
    ),
    "Buffers and evaluation": (
        Row("BatchNorm's statistics are rank 0's in each pass", training.batch_norm_statistics),
        Row(
            "buffers that a rank changes between steps, from whichever step on",
            buffers.changed_from_some_step_on,
        ),
        Row("buffers of all types", scripts.buffers_of_many_types),
        Row("buffers registered, resized or removed later", buffers.resized_and_registered_later),
        Row("evaluation between steps", ddp.evaluation_between_steps),
        Row("evaluation on one rank alone (DDP: of `module`)", training.evaluation_on_one_rank),
        Row("`torch.inference_mode`", odd.evaluation_in_inference_mode),
        Row("`model.module` evaluates and saves", surface.the_module_evaluates_and_saves),
    ),
    "Ranks with fewer batches": (
        Row("`join`, means over all ranks", joining.means_over_all),
        Row("`join(divide_by_initial_world_size=False)`", joining.means_over_those_that_train),
        Row("a rank without batches from the first step on", joining.from_the_first_step),
        Row("`torch.distributed.algorithms.join.Join`", joining.torchs_own_block),
        Row("`join` and accumulation under `no_sync`", joining.accumulated),
        Row("`join(enable=False)`", joining.not_enabled),
        Row("epochs within `join` and without it", joining.within_and_without),
        Row("`join(throw_on_early_termination=True)`", joining.ended_early),
    ),
    "Optimizers and state": (
        Row("groups with settings of their own", training.parameter_groups),
        Row("several optimizers", training.several_optimizers),
        Row("one optimizer of two models", moments.one_optimizer_of_two_models),
        Row("closures", training.closures),
        Row("step hooks", training.step_hooks),
        Row(
            "optimizers that wrap others (ZeroRedundancyOptimizer, PostLocalSGDOptimizer)",
            members.wrappers_of_torchs,
        ),
        Row("state that is read or reset between steps", scripts.optimizer_state_read_and_reset),
        Row("parameters frozen and trained again", scripts.frozen_and_trained_again),
        Row(
            "parameters unfrozen after the call (DDP trains them on each rank alone)",
            members.unfrozen_later,
            _refused("detach, then distribute again"),
        ),
        Row("weights set or clamped by hand", odd.weights_clamped_after_a_step),
        Row("`state_dict` at any moment", training.state_at_any_moment),
        Row("`load_state_dict` amid training", odd.best_state_loaded),
        Row("`copy.deepcopy`, pickles", training.copies),
        Row("averages of weights (EMA, SWA)", training.averaged_parameters),
        Row("weights read below Python: TorchScript, operators in C++, DLPack, numpy", below.read_below),
        Row("views and arrays of weights, taken before a step and read behind it", below.kept_from_before),
        Row("losses of weights outside of the model", below.losses_of_scripts),
        Row("functions that the user compiled", below.functions_compiled_by_the_user),
        Row("`torch.jit.trace`, `torch.export` between steps", below.traced_and_exported),
        Row(
            "`torch.jit.script` of `module`",
            below.scripted_by_the_user,
            _refused("script `copy.deepcopy(model)`, or detach first"),
        ),
        Row("`copy.copy` shares parameters", below.shallow_copies),
        Row("DataLoader workers and forks", moments.loaders_that_fork),
        Row("saving from another thread", odd.saved_from_a_thread),
    ),
}


def rows() -> list[Row]:
    """Every row of the table."""
    return [row for each in TABLE.values() for row in each]


def page() -> str:
    """The page of the documentation."""
    lines = [
        "# DistributedDataParallel beside Hocket, case by case",
        "",
        "Each row is a case that CI runs: two processes over gloo train a model under",
        "DistributedDataParallel (DDP) and its twin under `hocket.distribute`; parameters, buffers,",
        "gradients and the optimizer's state are compared to the last bit. *The same* says that they",
        f"are equal; *refused* that one line says what to do instead. {len(rows())} rows; made by",
        "`python -m tests.multiprocess.ddp_table`.",
    ]
    for section, of_section in TABLE.items():
        lines += ["", f"## {section}", "", "| DDP | Here |", "| --- | --- |"]
        lines += [f"| {row.behaviour} | {row.here} |" for row in of_section]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
