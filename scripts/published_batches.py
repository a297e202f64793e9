"""Memory that steps of published batches are said to need, beside the cards that ran them.

    python -m scripts.published_batches    # transformers has to be there

The batches are Lambda's (PyTorch, ResNet-50 v1.5 at 224 x 224 and BERT base at 384 tokens), of single cards,
which ran them: a step that is said not to fit is one of which too much is expected. In mixed precision
ResNet-50 ran in autocast, and BERT as a model in float16 with float32 masters (apex's O2, by its logs).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForQuestionAnswering, ResNetConfig, ResNetForImageClassification

from hocket.datasheets import Precision, device_named
from hocket.graph import StepMemory
from hocket.profiler import Target, derive, fake, make_step

_BATCHES: tuple[tuple[str, Precision, int, int], ...] = (
    ("v100", "amp", 256, 48),
    ("v100", "fp32", 128, 24),
    ("rtx3090", "amp", 448, 96),
    ("rtx3090", "tf32", 224, 48),
    ("a100-80gb", "amp", 1280, 320),
    ("a100-80gb", "tf32", 640, 172),
)


def resnet50(batch_size: int) -> tuple[Any, ...]:
    """ResNet-50 v1.5 with SGD and momentum."""
    config: Any = ResNetConfig
    model: Any = ResNetForImageClassification(config(num_labels=1000))
    batch = {"pixel_values": torch.randn(batch_size, 3, 224, 224), "labels": torch.randint(9, (batch_size,))}
    return model, batch, None, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def bert_base(batch_size: int) -> tuple[Any, ...]:
    """BERT base for questions about a text, with explicit attention and AdamW."""
    config: Any = BertConfig
    model: Any = BertForQuestionAnswering(config(attn_implementation="eager"))
    tokens = torch.randint(1000, (batch_size, 384))
    places = {f"{end}_positions": torch.randint(384, (batch_size,)) for end in ("start", "end")}
    return model, {"input_ids": tokens, **places}, None, torch.optim.AdamW(model.parameters())


def main() -> None:
    """Print a row for each published batch."""
    print("| card | precision | model (batch) | needs [GB] | of | fits | largest batch |")
    print("| --- | --- | --- | ---: | ---: | --- | ---: |")
    for device, precision, images, texts in _BATCHES:
        for name, make, batch_size in (("ResNet-50", resnet50, images), ("BERT base", bert_base, texts)):
            with fake():
                setup = make(batch_size)
            if name == "BERT base" and precision == "amp":
                memory = derive(make_step(*setup), device=Target(device, "fp16")).memory
                _print(device, "fp16, masters", f"{name} ({batch_size})", memory and memory.with_masters())
            else:
                memory = derive(make_step(*setup), device=Target(device, precision)).memory
                _print(device, precision, f"{name} ({batch_size})", memory)


def _print(device: str, precision: str, model: str, memory: StepMemory | None) -> None:
    assert memory is not None
    needed, capacity = memory.needed().total_bytes, device_named(device).capacity_bytes
    fits, largest = "yes" if needed <= capacity else "no", memory.largest_batch(capacity)
    shown = f"{needed / 1e9:.1f} | {capacity / 1e9:.1f} | {fits} | {largest}"
    print(f"| {device} | {precision} | {model} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
