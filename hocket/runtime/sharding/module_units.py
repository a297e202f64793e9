"""Units as modules: what torch's ``fully_shard`` is given for the parameters of each unit of a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import nn

from hocket.errors import HocketError
from hocket.graph.plan import batch_name
from hocket.runtime.sharding.module_tree import ModuleTree, blocks_of, is_container, outside_names
from hocket.text import counted

_FIX = "plan with whole modules, such as policy 'fsdp' has them, or put both into one unit"


@dataclass(frozen=True)
class ModuleUnit:
    """A unit of a plan as modules.

    ``modules``: what is given to ``fully_shard`` together. ``hosts``: that is one module, of which the unit
    has only what no other unit has: those are sharded before it.
    """

    index: int
    modules: tuple[nn.Module, ...]
    hosts: bool = False


def modules_of_units(model: nn.Module, units: Sequence[Collection[str]]) -> list[ModuleUnit]:
    """The modules of each of ``units``, in the order in which they have to be sharded.

    Frozen parameters that no unit names go with the modules that have them. Those without a unit of their own
    at the root are the root's.

    Raises
    ------
    HocketError
        When the units are another model's, or one is no set of whole modules.
    """
    tree = ModuleTree(model)
    _check_names(tree, units)
    return _Mapping(tree, units).found()


class _Mapping:
    """The search for modules of all ``units``."""

    def __init__(self, tree: ModuleTree, units: Sequence[Collection[str]]) -> None:
        self._tree, self._units = tree, [frozenset(unit) for unit in units]
        self._planned = frozenset[str]().union(*self._units)
        self._whole = {k: self._whole_modules(unit, tree.model) for k, unit in enumerate(self._units)}
        self._root = self._root_unit()

    def found(self) -> list[ModuleUnit]:
        """All units, those within others before them."""
        result, hosts = [], list[tuple[int, ModuleUnit]]()
        for index, unit in enumerate(self._units):
            modules = self._whole[index]
            if index == self._root:
                hosts.append((0, ModuleUnit(index, (self._tree.model,), hosts=True)))
            elif frozenset[str]().union(*map(self._planned_below, modules)) == unit:
                self._refuse_functional(index, modules)
                result.append(ModuleUnit(index, tuple(modules)))
            else:
                host, depth = self._host(unit)
                self._check_host(index, host)
                hosts.append((depth, ModuleUnit(index, (host,), hosts=True)))
        taken = [host_unit.modules[0] for _, host_unit in hosts]
        for (_, host_unit), module in zip(hosts, taken, strict=True):
            if taken.count(module) > 1:
                self._refuse(host_unit.index, module)
        return result + [host_unit for _, host_unit in sorted(hosts, key=lambda host: -host[0])]

    def _planned_below(self, module: nn.Module) -> frozenset[str]:
        return self._tree.below(module) & self._planned

    def _whole_modules(self, unit: frozenset[str], module: nn.Module) -> list[nn.Module]:
        """The outermost modules of which ``unit`` has all that is planned; containers may not be called."""
        below = self._planned_below(module)
        if below and below <= unit and not is_container(module):
            return [module]
        children = [child for child in module.children() if self._tree.below(child) & unit]
        found = [each for child in children for each in self._whole_modules(unit, child)]
        return list(dict.fromkeys(found))

    def _root_unit(self) -> int | None:
        """The unit that is the root's: all there is, or one that has all that no block has."""
        if len(self._units) == 1:
            return 0
        rest = outside_names(self._tree, blocks_of(self._tree.model)) & self._planned
        if not rest:
            return None
        at_root = (k for k, unit in enumerate(self._units) if rest <= unit and self._host(unit)[1] == 0)
        return next(at_root, None)

    def _host(self, unit: frozenset[str]) -> tuple[nn.Module, int]:
        """The innermost module that has all of ``unit``, and how deep it lies."""
        module, depth = self._tree.model, 0
        while not unit & frozenset(self._tree.own(module)):
            inner = next((c for c in module.children() if unit <= self._tree.below(c)), None)
            if inner is None:
                break
            module, depth = inner, depth + 1
        return module, depth

    def _check_host(self, index: int, host: nn.Module) -> None:
        """Refuse a host of which other units have parts that are not whole modules within it."""
        if type(host) in (nn.ModuleList, nn.ModuleDict):
            self._refuse(index, host)
        inside = self._planned_below(host)
        within = set(host.modules()) - {host}
        for k, other in enumerate(self._units):
            if k != index and other & inside and not (other <= inside and within.issuperset(self._whole[k])):
                self._refuse(index, host, k)
        own = frozenset(self._tree.own(host)) & self._planned
        if not own <= self._units[index]:
            self._refuse(index, host)

    def _refuse_functional(self, index: int, modules: Sequence[nn.Module]) -> None:
        for module in self._tree.module_names:
            if isinstance(module, nn.MultiheadAttention):
                part = next((m for m in modules if m is not module and m in set(module.modules())), None)
                if part is not None:
                    raise HocketError(
                        f"unit {index} of the plan has {self._tree.shown(part)}, whose parameters"
                        f" {self._tree.shown(module)} reads itself; have all of that in one unit"
                    )

    def _refuse(self, index: int, host: nn.Module, other: int | None = None) -> None:
        unit = self._units[index]
        name = next(n for n in self._tree.names.values() if n in unit)
        if other is None:
            outside = next(
                (n for n in self._tree.names.values() if n in self._planned_below(host) - unit), name
            )
            other = next((k for k, each in enumerate(self._units) if outside in each), index)
        raise HocketError(
            f"unit {index} of the plan ({batch_name((name, *sorted(unit - {name})))}) is no set of whole"
            f" modules: unit {other} has other parameters of {self._tree.shown(host)}; {_FIX}"
        )


def _check_names(tree: ModuleTree, units: Sequence[Collection[str]]) -> None:
    """Refuse units that are another model's: unknown names, names twice, or trained parameters left out."""
    known = set(tree.names.values())
    planned: dict[str, int] = {}
    for index, unit in enumerate(units):
        for name in unit:
            if name not in known:
                raise HocketError(
                    f"unit {index} of the plan has '{name}', and the model, a {type(tree.model).__name__},"
                    " has no such parameter; make a plan of this model"
                )
            if name in planned:
                raise HocketError(
                    f"units {planned[name]} and {index} of the plan both have '{name}'; leave it in one"
                )
            planned[name] = index
    left_out = [name for p, name in tree.names.items() if p.requires_grad and name not in planned]
    if left_out:
        raise HocketError(
            f"no unit of the plan has {_first(left_out)} of the model; make a plan of this model"
        )


def _first(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
    return f"'{names[0]}'{more}"
