"""What ranks run for test_frameworks.py: each framework's own loop, first with its DDP, then with us."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from hocket.errors import HocketError
from hocket.graph import Plan
from tests.multiprocess.setups import Plain, batch
from tests.multiprocess.twins import differing, sliced_plan

CLIP = 0.3


def data(count: int, seed: int = 0) -> TensorDataset:
    return TensorDataset(*batch(seed, seed, count))


def shared_folder() -> Path:
    """A new folder that all ranks know."""
    box = [tempfile.mkdtemp()]
    dist.broadcast_object_list(box)
    return Path(box[0])


def as_launched(rank: int) -> None:
    """What frameworks ask the environment for beside what the tests' launcher sets."""
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(dist.get_world_size())}


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(HocketError) as refused:
        call()
    return str(refused.value)


# Lightning.


def _trainer_run(
    strategy: Callable[[nn.Module], Any], *, accumulate: int, clip: float | None, precision: str
) -> tuple[Any, dict[str, Any]]:
    """Two epochs, a checkpoint, and a third epoch from it: the last strategy, and what has to be alike."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Plain()

        def training_step(self, pair: list[torch.Tensor], index: int) -> torch.Tensor:
            return functional.cross_entropy(self.net(pair[0]), pair[1])

        def validation_step(self, pair: list[torch.Tensor], index: int) -> None:
            self.log("loss", functional.cross_entropy(self.net(pair[0]), pair[1]), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    checkpoint = shared_folder() / "two.ckpt"
    losses = []
    for epochs in (2, 3):
        torch.manual_seed(0)
        module = Module()
        used = strategy(module)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=dist.get_world_size(),
            strategy=used,
            precision=precision,
            max_epochs=epochs,
            accumulate_grad_batches=accumulate,
            gradient_clip_val=clip,
            num_sanity_val_steps=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loaders = DataLoader(data(48), 4), DataLoader(data(16, 1), 4)
        trainer.fit(module, *loaders, ckpt_path=checkpoint if epochs == 3 else None)
        losses.append(trainer.callback_metrics["loss"].item())
        if epochs == 2:
            trainer.save_checkpoint(checkpoint)
    saved = torch.load(checkpoint, weights_only=True)
    alike = {
        "losses": losses,
        "saved": saved["state_dict"],
        "saved optimizers": saved["optimizer_states"],
        "model": module.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "steps": trainer.global_step,
    }
    assert "hocket" not in vars(module)
    return used, alike


def lightning_trainer(rank: int) -> list[str]:
    """Accumulation, clipping, validation, checkpoints and bfloat16, and none of them."""
    from hocket.integrations.lightning import HocketStrategy

    found = []
    for accumulate, clip, precision in ((1, None, "32-true"), (2, CLIP, "32-true"), (1, None, "bf16-mixed")):
        options: Any = {"accumulate": accumulate, "clip": clip, "precision": precision}
        _, expected = _trainer_run(lambda _: "ddp", **options)
        used, alike = _trainer_run(
            lambda module: HocketStrategy(plan=sliced_plan(module, "ready")), **options
        )
        assert expected["steps"] == 18 / accumulate
        assert "net.layers.0.weight" in alike["saved"]
        # Only clipping by norm has to see all gradients at once.
        assert ("barrier" in used.hocket.explain()) == (clip is not None)
        found += [f"{options}: {place}" for place in differing("", expected, alike)]
    return found


def lightning_fabric(rank: int) -> list[str]:
    """Accumulation, clipping, evaluation, two optimizers, and a checkpoint that is loaded."""
    from lightning.fabric import Fabric

    from hocket.integrations.lightning import HocketFabricStrategy

    def run(strategy: Callable[[nn.Module], Any]) -> dict[str, Any]:
        torch.manual_seed(0)
        net = Plain()
        fabric = Fabric(accelerator="cpu", devices=dist.get_world_size(), strategy=strategy(net))
        fabric.launch()
        body = torch.optim.SGD(net.layers[:4].parameters(), lr=0.05, momentum=0.9)
        head = torch.optim.Adam(net.layers[4:].parameters(), lr=0.01)
        model, body, head = fabric.setup(net, body, head)
        loader = fabric.setup_dataloaders(DataLoader(data(64), 4))
        path, kept = shared_folder() / "state.ckpt", []
        for epoch in range(3):
            for index, (x, y) in enumerate(loader):
                accumulating = index % 2 == 0
                with fabric.no_backward_sync(model, enabled=accumulating):
                    fabric.backward(functional.cross_entropy(model(x), y))
                if not accumulating:
                    kept.append(fabric.clip_gradients(model, head, max_norm=CLIP).item())
                    for optimizer in (body, head):
                        optimizer.step()
                        optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                kept.append(model(batch(rank, epoch)[0]).sum().item())
            model.train()
            state = {"model": model, "body": body, "head": head}
            if epoch == 0:
                fabric.save(path, state)
            elif epoch == 1:
                fabric.barrier()
                fabric.load(path, state)  # back to where the first epoch ended
        saved = torch.load(path, weights_only=True)
        return {"kept": kept, "saved": saved, "model": net.state_dict(), "head": head.state_dict()}

    expected = run(lambda _: "ddp")
    alike = run(lambda net: HocketFabricStrategy(plan=sliced_plan(net, "ready")))
    assert "layers.0.weight" in alike["saved"]["model"]
    return differing("", expected, alike)


def lightning_refusals(rank: int) -> list[str]:
    import lightning.pytorch as pl
    from lightning.fabric import Fabric

    from hocket.integrations.lightning import HocketFabricStrategy, HocketStrategy

    class Manual(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.automatic_optimization = Plain(), False

        def training_step(self, pair: list[torch.Tensor], index: int) -> None:
            raise AssertionError

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet: Any = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    world = dist.get_world_size()
    trainer = pl.Trainer(accelerator="cpu", devices=world, strategy=HocketStrategy(), **quiet)
    fabric = Fabric(accelerator="cpu", devices=world, strategy=HocketFabricStrategy())
    fabric.launch()
    frozen = fabric.setup(Plain().requires_grad_(False))
    assert frozen(batch(0, 0)[0]).shape == (4, 5)
    return [
        refusal(lambda: trainer.fit(Manual(), DataLoader(data(8), 4))),
        refusal(lambda: fabric.setup(Plain())),
    ]


# Hugging Face.


def _forgotten() -> None:
    """Accelerate keeps one state a process; a second accelerator is to begin as the first one did."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def accelerate_loop(rank: int) -> list[str]:
    """Accumulation, clipping, a scheduler, evaluation, and a state that is saved and loaded."""
    from accelerate import Accelerator

    from hocket.integrations.accelerate import use_hocket

    def run(plan: Callable[[nn.Module], Plan] | None) -> dict[str, Any]:
        _forgotten()
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        torch.manual_seed(0)
        net = Plain()
        if plan is not None:
            assert use_hocket(accelerator, plan=plan(net)) is accelerator
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
        model, optimizer, loader, scheduler = accelerator.prepare(
            net, optimizer, DataLoader(data(64), 4), scheduler
        )
        folder, kept = shared_folder(), []
        for epoch in range(3):
            for x, y in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(functional.cross_entropy(model(x), y))
                    if accelerator.sync_gradients:
                        kept.append(accelerator.clip_grad_norm_(model.parameters(), CLIP).item())
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                kept.append(model(batch(rank, epoch)[0]).sum().item())
            model.train()
            if epoch == 0:
                accelerator.save_state(str(folder))
            elif epoch == 1:
                accelerator.wait_for_everyone()
                accelerator.load_state(str(folder))  # back to where the first epoch ended
        unwrapped = accelerator.unwrap_model(model)
        assert unwrapped is net
        return {"kept": kept, "model": unwrapped.state_dict(), "optimizer": optimizer.state_dict()}

    expected = run(None)
    return differing("", expected, run(lambda net: sliced_plan(net, "ready")))


class Scored(nn.Module):
    """What ``transformers.Trainer`` trains: takes a batch by name and returns its loss.

    No BatchNorm: where its DDP evaluates, each rank has statistics of its own, and we have rank 0's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def transformers_trainer(rank: int) -> list[str]:
    """Accumulation, clipping, evaluation and checkpoints of the Trainer, with one line of ours."""
    from transformers import Trainer, TrainingArguments

    from hocket.integrations.accelerate import use_hocket

    rows = [{"x": x, "labels": y} for x, y in data(64)]

    def run(plan: Callable[[nn.Module], Plan] | None) -> dict[str, Any]:
        _forgotten()
        arguments = TrainingArguments(
            output_dir=str(shared_folder()),
            use_cpu=True,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_grad_norm=CLIP,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="steps",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        torch.manual_seed(0)
        model = Scored()
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:16])
        if plan is not None:
            use_hocket(trainer.accelerator, plan=plan(model))
        trainer.train()
        logs = [
            {k: v for k, v in entry.items() if k in ("loss", "grad_norm", "eval_loss", "step")}
            for entry in trainer.state.log_history
        ]
        written = sorted(path.name for path in Path(arguments.output_dir).rglob("*") if path.is_file())
        return {"logs": logs, "model": model.state_dict(), "written": written}

    expected = run(None)
    alike = run(lambda model: sliced_plan(model, "ready"))
    assert len(expected["logs"]) > 8
    return differing("", expected, alike)


def accelerate_refusals(rank: int) -> list[str]:
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.utils import DDPCommunicationHookType, extract_model_from_parallel

    from hocket.integrations.accelerate import use_hocket

    _forgotten()
    hooked = Accelerator(
        cpu=True,
        kwargs_handlers=[DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.POWER_SGD)],
    )
    accelerator = use_hocket(Accelerator(cpu=True))
    one, other = Plain(), Plain()
    both = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
    frozen = accelerator.prepare(Plain().requires_grad_(False))
    assert "hocket" not in vars(frozen)
    kept = DistributedDataParallelKwargs(
        broadcast_buffers=False,
        find_unused_parameters=True,
        bucket_cap_mb=1,
        comm_hook=DDPCommunicationHookType.BF16,
    )
    plain = Plain()
    telling = use_hocket(Accelerator(cpu=True, kwargs_handlers=[kept]))
    model, _ = telling.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    assert model is plain
    assert model.hocket._training.buffers is None
    assert model.hocket._training.gradient_dtype is torch.bfloat16
    assert extract_model_from_parallel(model, recursive=True) is model
    model.hocket.detach()
    return [
        refusal(lambda: use_hocket(hooked)),
        refusal(lambda: accelerator.prepare(Plain())),
        refusal(lambda: accelerator.prepare_model(Plain())),
        refusal(lambda: accelerator.prepare(one, other, both)),
    ]


def lightning_cases(rank: int, world: int) -> dict[str, list[str]]:
    as_launched(rank)
    found = {case.__name__: case(rank) for case in (lightning_fabric, lightning_refusals)}
    return found | {"lightning_trainer": lightning_trainer(rank)}


def hugging_face_cases(rank: int, world: int) -> dict[str, list[str]]:
    as_launched(rank)
    cases = (accelerate_loop, accelerate_refusals, transformers_trainer)
    return {case.__name__: case(rank) for case in cases}
