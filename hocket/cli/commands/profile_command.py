"""``hocket profile``: one worker's step, measured here or derived for a device that is not here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli import options
from hocket.cli.name_options import complete_device, complete_model, lowercase, lowercase_unless_file
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, PROFILE, option
from hocket.cli.printing import note, note_table, progress, warn
from hocket.cli.profile_pace import StepPace
from hocket.cli.profile_script import measure_script
from hocket.datasheets import Device, Precision
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.graph import StepGraph
    from hocket.profiler import Profile


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """Options for the step that is profiled, and the device."""

    batch_size: Annotated[
        int | None,
        option(
            panel=PROFILE,
            metavar="N",
            min=1,
            help="Examples in a step.",
            show_default="FACTORY's own, else 32; a SCRIPT.py's is counted",
        ),
    ] = None
    steps: Annotated[
        int, option(panel=PROFILE, metavar="N", min=1, help="Steps to measure, each with its own durations.")
    ] = 20
    device: Annotated[
        str,
        option(
            panel=PROFILE,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_device,
            help="Measure on cpu (cuda: untried); derive v100, a100-80gb, rtx4090, ...",
        ),
    ] = "cpu"
    device_file: Annotated[
        Path | None,
        option(panel=PROFILE, metavar="FILE", help="Derived: your own datasheet, hocket.device/1."),
    ] = None
    precision: Annotated[
        Precision | None,
        option(
            panel=PROFILE,
            help="Derived: amp is autocast, to bfloat16 too; bf16 and fp16 convert the model.",
            show_default="tf32 where the device has it, else fp32",
        ),
    ] = None
    channels_last: Annotated[
        bool, option("--channels-last", panel=PROFILE, help="Derived: images with their channels last.")
    ] = False
    compile: Annotated[
        bool, option("--compile", panel=PROFILE, help="Derived: fuse as torch.compile does (untried).")
    ] = False
    inference: Annotated[bool, option("--inference", panel=PROFILE, help="The forward pass alone.")] = False
    threads: Annotated[
        int | None,
        option(
            panel=PROFILE,
            metavar="N",
            min=1,
            max=1024,
            help="Intra-op threads.",
            show_default="torch's choice",
        ),
    ] = None
    jitter: Annotated[
        float,
        option(
            panel=PROFILE,
            metavar="X",
            min=0.0,
            max=1.0,
            help="Derived: vary whole steps lognormally by this much.",
        ),
    ] = 0.0

    def check(self) -> None:
        """Refuse what the device has no use for."""
        from hocket.datasheets import is_derived

        device, threads, jitter = self.device, self.threads, self.jitter
        if self.device_file is not None:
            if device != "cpu":
                raise HocketError(f"--device {device} and --device-file {self.device_file}: give one of them")
        elif not is_derived(device):
            if jitter:
                rule = f"steps measured on {device} vary by themselves; leave it out"
                raise HocketError(f"jitter {jitter}: {rule}")
            self._check_measured()
            return
        if threads is not None:
            raise HocketError(
                f"{threads} threads: nothing runs to derive a step for {device}; leave them out"
            )
        if self.precision is not None:
            self.sheet().check(self.precision)

    def _check_measured(self) -> None:
        """Refuse what a measured step has by itself."""
        for named, given in (
            (f"--precision {self.precision}", self.precision is not None),
            ("--channels-last", self.channels_last),
            ("--compile", self.compile),
        ):
            if given:
                raise HocketError(
                    f"{named}: a step is measured on {self.device} as the factory makes it; do it there, or"
                    " derive the step for a --device such as a100"
                )

    def sheet(self) -> Device:
        """The datasheet of the device to derive for."""
        from hocket.datasheets import device_named

        if self.device_file is None:
            return device_named(self.device)
        from hocket.profiler.device_file import load_device

        return load_device(self.device_file)

    def is_derived(self) -> bool:
        """True if nothing is run."""
        from hocket.datasheets import is_derived

        return self.device_file is not None or is_derived(self.device)

    def check_script(self, script: str) -> None:
        """Refuse what a script decides itself."""
        device = self.device
        for named, given in (("--inference", self.inference), (f"--device {device}", device != "cpu")):
            if given:
                raise HocketError(f"{named}: a script runs as it is; leave it out, or give {script}:FACTORY")


@grouped
def profile(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.py:FACTORY|SCRIPT.py",
            help="A zoo model (hocket models), a function in a file of yours, or a script that trains.",
            callback=lowercase_unless_file,
            autocompletion=complete_model,
        ),
    ],
    step: ProfileOptions,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGUMENTS...", help="A script's own.")
    ] = None,
    output: Annotated[
        Path, option("-o", "--output", panel=OUTPUT, metavar="FILE", help="The hocket.step/1 file to write.")
    ] = Path("step.json"),
    seed: options.Seed = 0,
) -> None:
    """Measure a real training step as a graph of operations, or derive it for a device (nothing is run).

    A SCRIPT.py is run as python would, alone as torchrun would, and ended when steps of the first optimizer
    that steps in it are measured, from its second one on: 4, then --steps sampled and as many plain ones.
    """
    from hocket.models.target import check_target

    step.check()
    if not target.endswith(".py"):  # the name first: torch takes seconds to import
        check_target(target)
    from hocket.graph import save_step
    from hocket.profiler import set_num_threads
    from hocket.report.memory_verdict import memory_answers, memory_verdict

    options.check_written(output, target.rpartition(":")[0] or target)
    if target.endswith(".py"):
        step.check_script(target)
    elif arguments:
        raise HocketError(f"{arguments[0]}: arguments are for a script, and {target} is none; leave them out")
    if step.threads is not None:
        set_num_threads(step.threads)
    if target.endswith(".py"):
        measure_script(Path(target), arguments or [], output, step.steps, step.batch_size)
        return
    if step.is_derived():
        graph = _derived(target, step, seed)
        save_step(graph, output)
        for line in memory_answers(memory_verdict(graph, sheet=step.sheet()), [_derived_for(graph, step)]):
            note(line)
        print_calibration(graph)
    else:
        measured = _measured(target, step)
        graph = measured.graph
        save_step(graph, output)
        note(measured_step(measured))
    note(
        f"{output}: batch size {graph.batch_size}, {graph.num_operations} operations,"
        f" {graph.num_parameters} parameters, {int(graph.parameter_bytes.sum()) / 2**20:.2f} MiB,"
        f" sampled steps: {graph.num_samples}"
    )
    if graph.caveat:
        warn(f"{output}: {graph.caveat}")


def _derived(target: str, step: ProfileOptions, seed: int) -> StepGraph:
    """The step of ``target``, derived for a device that is not here."""
    from hocket.profiler import Target, derive
    from hocket.profiler.derived_target import load_target

    sheet = step.sheet()
    way = Target(sheet, step.precision, channels_last=step.channels_last, compile=step.compile)
    with progress(f"deriving {target} on {sheet.name}"):
        loaded = load_target(target, step.batch_size, inference=step.inference, told=note)
        return derive(
            loaded.step,
            device=way,
            name=loaded.name,
            batch_size=loaded.batch_size,
            samples=step.steps if step.jitter > 0 else 1,
            jitter=step.jitter,
            seed=seed,
        )


def _measured(target: str, step: ProfileOptions) -> Profile:
    """The step of ``target``, measured on a device of this machine."""
    from hocket.profiler import check_device, load, make_step, on_device, profile_step
    from hocket.profiler.derived_target import num_examples
    from hocket.profiler.machine_use import BusyNotice

    check_device(step.device)
    setup = on_device(load(target, step.batch_size, training=not step.inference), step.device)
    notice, pace = BusyNotice(note), StepPace(target, step.steps)
    with pace.told_when_stopped(), progress(f"profiling {target} on {step.device}") as report:

        def between_steps(done: int, total: int) -> None:
            notice.look()
            pace.report(done, total)
            report(done, total)

        measured = profile_step(
            make_step(*setup[:4], inference=step.inference),
            steps=step.steps,
            name=setup.name,
            batch_size=num_examples(setup, target, step.batch_size, note),
            progress=between_steps,
        )
    notice.end(measured.use)
    return measured


def measured_step(measured: Profile) -> str:
    """The step without a profiler, and what the file's operations sum to, in one line."""
    import numpy as np

    from hocket.text import duration_text

    plain, filed = (
        duration_text(float(np.median(s))) for s in (measured.plain_step_s, measured.operations_sum_s)
    )
    return (
        f"a step takes {plain} without the profiler; in the file its operations sum to {filed}"
        f" ({measured.sum_to_plain:.1%}){measured.doubt}"
    )


def _derived_for(graph: StepGraph, step: ProfileOptions) -> str:
    """The device and the precision of a derived step, in a line."""
    import numpy as np

    from hocket.text import duration_text

    sheet = step.sheet()
    seconds = float(np.mean(graph.durations_s.sum(axis=0)))
    rate = f"{graph.batch_size / seconds:.4g} examples/s"
    said = f"{sheet.title} in {graph.precision}: a step takes {duration_text(seconds)}, {rate}"
    convolves = any(len(shape) == 4 for shape in graph.parameter_shapes)
    if step.precision in ("amp", "bf16", "fp16") and convolves and not step.channels_last:
        return f"{said}; images have their channels first: with --channels-last convolutions are quicker"
    if step.precision is not None:
        return said
    if sheet.default_precision == "tf32":
        return (
            f"{said}; tf32 is the default here, torch's own has TF32 in convolutions only; --precision has"
            " fp32, amp, bf16 and fp16"
        )
    return f"{said}; fp32 is the default here, as torch's own"


def print_calibration(graph: StepGraph) -> None:
    """Say how far predictions are from each published figure of a step's device."""
    from hocket.profiler import stored_residuals

    rows = stored_residuals(graph.device, graph.precision)
    if not rows:
        return
    from hocket.columns import terminal_table, text_column, written_column

    device = graph.device

    columns = [
        text_column("model", [row.model for row in rows]),
        written_column("batch", [row.batch_size for row in rows]),
        written_column("published/s", [f"{row.published_images_s:.1f}" for row in rows]),
        written_column("predicted/s", [f"{row.predicted_images_s:.1f}" for row in rows]),
        written_column("ratio", [f"{row.ratio:.3f}" for row in rows]),
        text_column("source", [row.source for row in rows]),
    ]
    title = f"calibration of {device}: predicted against published"
    note_table(terminal_table(columns, title=title, spaced=True))
