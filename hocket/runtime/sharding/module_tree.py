"""A model's modules, and which parameters lie below each: what units can be made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class ModuleTree:
    """The modules of ``model`` and the names of the parameters below them.

    A parameter that several modules have counts for each of them, by the first of its names.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {p: name for name, p in model.named_parameters()}
        self.module_names = {module: name for name, module in model.named_modules()}
        self._below: dict[nn.Module, frozenset[str]] = {}
        self._note(model)

    def below(self, module: nn.Module) -> frozenset[str]:
        """The names of the parameters of ``module`` and of all modules within."""
        return self._below[module]

    def own(self, module: nn.Module) -> list[str]:
        """The names of the parameters that ``module`` itself has."""
        return [self.names[p] for p in module.parameters(recurse=False)]

    def shown(self, module: nn.Module) -> str:
        """The name of ``module`` in an error."""
        name = self.module_names[module]
        return f"'{name}'" if name else "the model itself"

    def _note(self, module: nn.Module) -> frozenset[str]:
        if module not in self._below:
            parts = [self._note(child) for child in module.children()]
            self._below[module] = frozenset(self.own(module)).union(*parts)
        return self._below[module]


def is_container(module: nn.Module) -> bool:
    """Tell whether ``module`` only holds others, which may be called without it."""
    kind, *bases = type(module).__mro__
    # Of a module that is sharded torch makes a class of its own, in front of the one that it had.
    return (bases[1] if bases[0].__name__ == "FSDPModule" else kind) in _CONTAINERS


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The modules that FSDP's users give a unit each: the elements of the outermost lists and sequences.

    Single layers are blocks only where there is nothing larger, as in a plain sequence of them.
    """
    found = [block for block in _elements(model) if any(True for _ in block.parameters())]
    larger = [block for block in found if any(True for _ in block.children())]
    return list(dict.fromkeys(larger or found))


def _elements(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if is_container(module) and not is_container(child):
            yield child
        else:
            yield from _elements(child)


def unit_names(tree: ModuleTree, blocks: Sequence[nn.Module]) -> list[tuple[str, ...]]:
    """The parameters of a unit for each of ``blocks``, and first of one for all that no block has.

    Blocks that share a parameter are one unit, and a block that shares one with the rest is of the rest.
    """
    rest = set(outside_names(tree, blocks))
    units: list[set[str]] = []
    for block in blocks:
        unit = set(tree.below(block))
        for other in [each for each in units if each & unit]:
            units.remove(other)
            unit |= other
        units.append(unit)
    while shared := next((unit for unit in units if unit & rest), None):
        units.remove(shared)
        rest |= shared
    everything = list(tree.names.values())
    return [tuple(name for name in everything if name in unit) for unit in (rest, *units) if unit]


def outside_names(tree: ModuleTree, blocks: Sequence[nn.Module]) -> frozenset[str]:
    """The names of the parameters that modules outside of all ``blocks`` have."""
    within = {module for block in blocks for module in block.modules()}
    return frozenset(
        name for module in tree.module_names if module not in within for name in tree.own(module)
    )
