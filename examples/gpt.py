"""A small GPT with gradient accumulation and clipping, on several processes.

    torchrun --nproc-per-node 2 examples/gpt.py
    hocket train --nproc-per-node 2 --timeline gpt.json examples/gpt.py
    hocket profile examples/gpt.py:job --batch-size 8 --device v100 -o step.json

Every step sums the gradients of several batches. All but the last run within ``model.hocket.no_sync()``:
gradients travel once a step. Clipping takes the norm over all of them and so waits for every transfer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

import hocket

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 4096, 64, 256, 4, 4


class Block(nn.Module):
    """Causal self-attention and a two-layer perceptron, each on normalized input and added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, T, WIDTH) to the same."""
        heads = self.query_key_value(self.norm_1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*heads, is_causal=True)  # (N, HEADS, T, WIDTH / HEADS)
        x = x + self.projection(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """A decoder with learned positions; the output layer does not share the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens (N, T), T at most CONTEXT, to logits (N, T, VOCABULARY)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def synthetic_text(batch_size: int, generator: torch.Generator) -> Tensor:
    """Tokens (batch_size, CONTEXT + 1), each of which follows from the one before it."""
    tokens = [torch.randint(VOCABULARY, (batch_size,), generator=generator)]
    for _ in range(CONTEXT):
        tokens.append((5 * tokens[-1] + 7) % 97)
    return torch.stack(tokens, dim=1)


def job(batch_size: int) -> tuple:
    """A step for ``hocket profile``, of one batch and without clipping: model, batch, loss and optimizer."""
    model, text = GPT(), synthetic_text(batch_size, torch.Generator())
    batch = text[:, :-1], text[:, 1:]
    return model, batch, loss_of, torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_of(logits: Tensor, following: Tensor) -> Tensor:
    """The cross-entropy of logits (N, T, VOCABULARY) with the tokens (N, T) that follow."""
    return cross_entropy(logits.flatten(0, 1), following.flatten())


def plan_in_force(model: nn.Module) -> str:
    """The plan that trains, and whether it stays: the first steps try others beside DDP's."""
    if not hasattr(model, "hocket"):
        return ""
    return f"  plan {model.hocket.plan.policy} {'stays' if model.hocket.settled else 'is being tried'}"


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8, help="of each process, each time")
    parser.add_argument("--accumulate", type=int, default=2, help="batches whose gradients make one step")
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel, to compare with")
    args = parser.parse_args()

    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # plain python: a world of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if args.ddp:
        model = DistributedDataParallel(model)
        no_sync, clip = model.no_sync, partial(nn.utils.clip_grad_norm_, list(model.parameters()))
    else:
        model, optimizer = hocket.distribute(model, optimizer)
        no_sync, clip = model.hocket.no_sync, partial(hocket.clip_grad_norm_, model)

    mine = torch.Generator().manual_seed(dist.get_rank())  # every process draws texts of its own
    steps_per_line, begun = max(1, args.steps // 10), time.perf_counter()
    for step in range(1, args.steps + 1):
        for batch in range(1, args.accumulate + 1):
            text = synthetic_text(args.batch_size, mine)
            with contextlib.nullcontext() if batch == args.accumulate else no_sync():
                loss = loss_of(model(text[:, :-1]), text[:, 1:])
                (loss / args.accumulate).backward()
        clip(max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % steps_per_line == 0:
            now = time.perf_counter()
            count = steps_per_line * args.accumulate * args.batch_size * dist.get_world_size()
            rate = count / (now - begun)
            print(
                f"step {step}  loss {loss.item():.6f}  {rate:.1f} examples/s{plan_in_force(model)}",
                flush=True,
            )
            begun = now

    if not args.ddp:
        model.hocket.flush()  # the last step's transfers may still be on their way
        if dist.get_rank() == 0:
            print(model.hocket.explain())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
