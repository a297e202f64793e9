"""Memory of derived steps beside that of the same steps on real tensors, told by other means."""

from __future__ import annotations

import copy
import gc
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import hocket
from examples.gpt import GPT, loss_of
from hocket import models
from hocket.profiler import Target, derive, fake, make_step
from hocket.profiler._step_memory import envelope
from tests.naive.live_bytes import LiveBytes


def memory_of(model, batch, loss, optimizer=None, **target):
    return derive(make_step(model, batch, loss, optimizer), device=Target("a100", **target)).memory


def peak_of(memory, batch_size):
    """What comes and goes at the fullest moment, gradients included, without what is assumed."""
    return max(m.gradients_bytes + m.fixed_bytes + m.bytes_per_example * batch_size for m in memory.moments)


def bytes_of(*tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def mean_square(outputs, targets):
    """Like mse_loss, which on the CPU keeps its result in a storage as large as its inputs."""
    return (outputs - targets).square().mean()


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


class Layers(nn.Module):
    """Residual layers, each recomputed in the backward pass if asked for."""

    def __init__(self, recomputed, reentrant=False):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
            for _ in range(6)
        )
        self.recomputed, self.reentrant = recomputed, reentrant

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + (checkpoint(layer, x, use_reentrant=self.reentrant) if self.recomputed else layer(x))
        return x


def images(batch_size):
    return torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))


def vectors(batch_size):
    return torch.randn(batch_size, 16, 32), torch.randn(batch_size, 16, 32)


def texts(batch_size):
    tokens = torch.randint(4096, (batch_size, 64))
    return tokens, tokens.clone()


CASES = {
    "convolutions": (Convolutions, images, cross_entropy),
    "layers": (lambda: Layers(recomputed=False), vectors, mean_square),
    "checkpoints": (lambda: Layers(recomputed=True), vectors, mean_square),
    "reentrant checkpoints": (
        lambda: Layers(recomputed=True, reentrant=True),
        vectors,
        mean_square,
    ),
    "gpt": (GPT, texts, loss_of),
}


def most_alive(make, batch, loss, optimizer_of=None):
    """The most bytes alive at once in a step on real tensors, by the naive twin; the batch counts, too."""
    model = make()
    step = make_step(model, batch, loss, None if optimizer_of is None else optimizer_of(model.parameters()))
    gc.collect()
    with LiveBytes() as alive:
        step.run()
    return alive.most + bytes_of(*batch)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch_size", [4, 12])
def test_activations_are_those_of_real_tensors_for_another_batch_too(case, batch_size):
    make, batch_of, loss = CASES[case]
    memory = memory_of(make(), batch_of(4), loss)
    assert memory.scales
    assert peak_of(memory, batch_size) == pytest.approx(
        most_alive(make, batch_of(batch_size), loss), rel=1e-3
    )


def test_checkpoints_keep_less():
    kept, recomputed = (
        memory_of(Layers(each), vectors(64), nn.functional.mse_loss) for each in (False, True)
    )
    assert recomputed.needed().activations_bytes < 0.5 * kept.needed().activations_bytes


def allocated(step):
    """The most bytes that torch's allocator had out during a step, over those before, by torch.profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step.run()
    sizes = [e.nbytes() for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(np.cumsum(sizes))


@pytest.mark.parametrize("case", ["resnet50", "gpt", "checkpoints"])
def test_peaks_are_near_those_that_the_allocator_counted(case):
    if case == "resnet50":
        model, batch, loss, _ = models.make("resnet50_v1", 2)
    else:
        make, batch_of, loss = CASES[case]
        model, batch = make(), batch_of(8)
    peak = peak_of(memory_of(copy.deepcopy(model), batch, loss), len(batch[0]))
    counted = allocated(make_step(model, batch, loss, None)) + bytes_of(*batch)
    # Workspaces of the CPU's kernels, such as weights in another layout, are not the step's tensors.
    assert peak == pytest.approx(counted, rel=0.1)


OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), 0, 0),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1, 0),
    "decayed": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4), 1, 1),
    "adamw": (torch.optim.AdamW, 2, 1),
    "adamw one by one": (lambda p: torch.optim.AdamW(p, foreach=False), 2, None),
    "adamw fused": (lambda p: torch.optim.AdamW(p, fused=True), 2, 0),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_what_they_really_keep(name):
    make, kept, temporary = OPTIMIZERS[name]
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
    batch = torch.randn(2, 64), torch.randn(2, 64)
    memory = memory_of(model, batch, nn.functional.mse_loss, make(model.parameters()))
    size = bytes_of(*model.parameters())
    assert memory.parameters_bytes == memory.gradients_bytes == size
    assert memory.optimizer_bytes == pytest.approx(kept * size, abs=64)
    update = max((m.fixed_bytes for m in memory.moments if m.phase == "update"), default=0)
    if temporary is None:  # the square root of the state of one, and that over a number
        assert update == pytest.approx(2 * bytes_of(model[0].weight), rel=0.02)
    else:
        assert update == pytest.approx(temporary * size, rel=0.02, abs=20_000)


def test_an_optimizer_is_left_as_it_was():
    with fake():
        model = nn.Linear(8, 8)
        batch = torch.randn(2, 8), torch.randn(2, 8)
        optimizer = torch.optim.Adam(model.parameters())
    assert memory_of(model, batch, nn.functional.mse_loss, optimizer).optimizer_bytes
    assert optimizer.param_groups[0]["foreach"] is None


def test_autocast_keeps_casts_and_two_byte_models_have_masters():
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64))
    batch = torch.randn(4, 64), torch.randn(4, 64)
    size = bytes_of(*model.parameters())

    def of(precision):
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        return memory_of(model, batch, nn.functional.mse_loss, optimizer, precision=precision)

    whole, cast, narrow = of("fp32"), of("amp"), of("bf16")
    assert (whole.parameters_bytes, cast.parameters_bytes, narrow.parameters_bytes) == (size, size, size / 2)
    weights = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    forward = [max(m.fixed_bytes for m in memory.moments if m.phase != "update") for memory in (whole, cast)]
    assert forward[1] >= 2 * weights
    assert cast.masters_bytes == whole.masters_bytes == 0
    masters = narrow.with_masters()
    held = masters.parameters_bytes + masters.gradients_bytes + masters.optimizer_bytes
    assert held == pytest.approx(16 * size / 4, rel=1e-3)


def test_dropout_keeps_a_byte_for_each_number_as_on_gpus():
    def layers(rate):
        return nn.Sequential(
            nn.Linear(8, 8), *(nn.Sequential(nn.Tanh(), nn.Dropout(rate)) for _ in range(40))
        )

    batch = torch.randn(1000, 8), torch.randn(1000, 8)
    plain, dropped = (memory_of(layers(rate), batch, nn.functional.mse_loss) for rate in (0.0, 0.5))
    assert peak_of(dropped, 1000) - peak_of(plain, 1000) == pytest.approx(40 * 1000 * 8, rel=0.2)


class Contrast(nn.Module):
    """Compares each example with each, as contrastive losses do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        embedded = self.layer(x)
        return (embedded @ embedded.T).softmax(1)


class Written(nn.Module):
    """Has its batch's size written down."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).view(6, 4, 2)


@pytest.mark.parametrize("made", [Contrast, Written])
def test_what_does_not_grow_evenly_is_told_of_its_own_batch_only(made):
    batch = torch.randn(6, 8), torch.zeros(())
    memory = memory_of(made(), batch, lambda outputs, _: outputs.square().sum())
    assert not memory.scales
    assert memory.needed().activations_bytes > 0


def test_targets_that_are_folded_grow_with_the_batch():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 10)

        def forward(self, x):
            return self.layer(x).flatten(0, 1)

    batch = torch.randn(4, 5, 8), torch.randint(10, (20,))
    assert memory_of(Folded(), batch, cross_entropy).scales


def test_inference_needs_no_gradients():
    graph = derive(make_step(Convolutions(), images(4), None, None, inference=True), device="a100")
    assert graph.memory.gradients_bytes == graph.memory.optimizer_bytes == 0
    assert {moment.phase for moment in graph.memory.moments} == {"forward"}


def test_blocks_are_numbered_modules_and_the_rest_is_the_root():
    memory = memory_of(GPT(), texts(2), loss_of)
    model = GPT()
    assert memory.block_bytes == bytes_of(*model.blocks[0].parameters())
    blocks = bytes_of(*model.blocks.parameters())
    assert memory.root_bytes == memory.parameters_bytes - blocks


def test_tied_weights_are_there_once():
    model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100, bias=False))
    model[1].weight = model[0].weight
    batch = torch.randint(100, (4, 5)), torch.randint(100, (4, 5))

    def loss(outputs, targets):
        return cross_entropy(outputs.flatten(0, 1), targets.flatten())

    assert memory_of(model, batch, loss).parameters_bytes == 100 * 16 * 4


def test_torchs_own_tracker_counts_the_same_peak():
    from torch.distributed._tools.mem_tracker import MemTracker

    model, batch = GPT(), texts(4)
    peak = peak_of(memory_of(model, batch, loss_of), 4)
    tracker = MemTracker()
    tracker.track_external(model, *batch)
    with tracker:
        loss_of(model(batch[0]), batch[1]).backward()
    (total,) = (snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values())
    # It rounds each tensor up to the 512 bytes that CUDA's allocator gives, and has the parameters as well.
    assert peak == pytest.approx(total - bytes_of(*model.parameters()), rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12))
def test_an_envelope_has_the_highest_line_of_every_batch(lines):
    fixed, slopes = np.array(lines, dtype=float).T
    kept = envelope(fixed, slopes)
    assert len(set(kept)) == len(kept)
    for batch in [0, 0.3, 1, 2, 7, 60, math.pi, 1e4]:
        assert (fixed + slopes * batch).max() == pytest.approx((fixed + slopes * batch)[kept].max())


LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def job(batch_size):
    model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=4096, use_cache=False))
    model.gradient_checkpointing_enable()
    model.train()
    tokens = torch.randint(32000, (batch_size, 4096))
    return model, {"input_ids": tokens, "labels": tokens}, None, torch.optim.AdamW(model.parameters())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "told"),
    [
        ("amp", "A batch of 1 does not fit: it needs 138 GB of the h100's 84.9 GB"),
        pytest.param(
            *("bf16", "float32 masters, a batch of 1 fits: it needs 69.7 GB of the h100's 84.9 GB"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_llama_of_seven_billion_is_derived_in_little_memory(precision, told, tmp_path):
    """16 bytes a parameter in mixed precision do not fit a card of 80 GB; shared out over eight they do."""
    pytest.importorskip("transformers")
    (tmp_path / "llama.py").write_text(LLAMA)
    options = ("--batch-size", "1", "--device", "h100", "--precision", precision, "-o", "llama.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket", "profile", "llama.py:job", *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    assert used.ru_maxrss < 4 * 2**20  # KiB
    assert told in said
    memory = hocket.load_step(tmp_path / "llama.json").memory
    assert memory.largest_batch(80e9, workers=8) == 0
    assert memory.needed(workers=8, sharding="parameters").total_bytes < 40e9
    assert memory.largest_batch(80e9, workers=8, sharding="parameters") > 1
