"""Chakra execution traces: equal graphs back, what simulators read, and a real file counted by hand."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import FormatError, HocketError
from hocket.graph import Phase, Plan, Reduction, StepGraph
from hocket.graph.io import step_document
from hocket.interop.chakra.chakra_export import chakra_bytes
from hocket.interop.chakra.chakra_step import import_chakra
from hocket.interop.chakra.schema import (
    CollectiveType,
    GlobalMetadata,
    Node,
    NodeType,
    attributes,
    read_messages,
    set_attribute,
    write_messages,
)
from tests.strategies import examples, operation, parameter, plans, reduction_plans, step, steps

DATA = Path(__file__).parents[4] / "shared" / "data"


def back(data: bytes, folder: Path, name: str = "step.et") -> tuple[StepGraph, tuple[str, ...]]:
    path = folder / name
    path.write_bytes(data)
    return import_chakra([path])


@given(data=st.data())
@examples(100)
def test_an_exported_step_reads_back_equal(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = data.draw(steps())
    plan = data.draw(st.none() | reduction_plans(graph))
    read, notes = back(chakra_bytes(graph, plan), tmp_path_factory.mktemp("chakra"))
    assert step_document(read) == step_document(graph)
    assert not notes


@given(data=st.data())
@examples(50)
def test_an_exported_plan_can_run_and_moves_every_byte(data: st.DataObject) -> None:
    graph = data.draw(steps(training=True))
    plan = data.draw(st.none() | reduction_plans(graph))
    _, nodes = read_messages(chakra_bytes(graph, plan), "file")
    size = sum(attributes(n)["comm_size"] for n in nodes if n.type == NodeType.COMM_COLL)
    assert size == graph.parameter_bytes[graph.produced].sum()
    # Nodes run as their dependencies have: none is left over, so that nothing waits for ever.
    left = {node.id: {*node.data_deps, *node.ctrl_deps} for node in nodes}
    while free := [id_ for id_, before in left.items() if not before & left.keys()]:
        for id_ in free:
            del left[id_]
    assert not left


def small() -> StepGraph:
    return step(
        [parameter("a", 1000), parameter("b", 30)],
        [
            operation("fa", 2e-6, reads=["a"]),
            operation("fb", [1.6e-6], inputs=["fa"], reads=["b"]),
            operation("bb", inputs=["fb"], produces=["b"], phase="backward"),
            operation("ba", inputs=["bb"], produces=["a"], phase="backward"),
            operation("ub", inputs=["bb"], reads=["b"], phase="update"),
            operation("ua", inputs=["ba"], reads=["a"], phase="update"),
        ],
    )


def shown(data: bytes) -> dict[str, tuple[int, list[str], list[str]]]:
    """Of each node its type and the names of what it depends on, by data and by control."""
    _, nodes = read_messages(data, "file")
    name = {node.id: node.name for node in nodes}
    return {
        node.name: (node.type, [name[i] for i in node.data_deps], [name[i] for i in node.ctrl_deps])
        for node in nodes
    }


def test_what_a_simulator_reads_of_a_step() -> None:
    metadata, nodes = read_messages(chakra_bytes(small()), "file")
    assert metadata.version
    assert shown(chakra_bytes(small())) == {
        "fa": (NodeType.COMP, [], []),
        "fb": (NodeType.COMP, ["fa"], []),
        "bb": (NodeType.COMP, ["fb"], []),
        "ba": (NodeType.COMP, ["bb"], []),
        "ub": (NodeType.COMP, ["bb", "reduce b"], []),
        "ua": (NodeType.COMP, ["ba", "reduce a"], []),
        "reduce a": (NodeType.COMM_COLL, ["ba"], []),
        "reduce b": (NodeType.COMM_COLL, ["bb"], []),
    }
    assert [node.duration_micros for node in nodes[:3]] == [2, 2, 1_000_000]
    reduce_a = next(node for node in nodes if node.name == "reduce a")
    assert attributes(reduce_a) == {
        "is_cpu_op": False,
        "comm_type": CollectiveType.ALL_REDUCE,
        "comm_size": 1000,
    }


def test_what_a_simulator_reads_of_a_plan() -> None:
    plan = Plan(
        policy="drawn",
        model="toy",
        architecture="allreduce",
        reductions=(
            Reduction(parameters=("b",)),
            Reduction(parameters=("a",), slice=(0, 1, 3)),
            Reduction(parameters=("a",), slice=(1, 3, 3)),
        ),
        compute_order=("fa", "fb", "bb", "ba", "ua", "ub"),
    )
    nodes = shown(chakra_bytes(small(), plan))
    assert nodes["reduce a [0:1/3]"] == (NodeType.COMM_COLL, ["ba"], ["reduce b"])
    assert nodes["reduce a [1:3/3]"] == (NodeType.COMM_COLL, ["ba"], ["reduce a [0:1/3]"])
    assert nodes["ua"][1] == ["ba", "reduce a [0:1/3]", "reduce a [1:3/3]"]
    assert nodes["ba"][2] == ["bb"]
    chunked = Plan(
        policy="drawn",
        model="toy",
        architecture="allreduce",
        reductions=(Reduction(parameters=("a", "b"), chunks=3),),
        compute_order=None,
        issue="ready",
    )
    nodes = shown(chakra_bytes(small(), chunked))
    assert nodes["reduce a and 1 more 2/3"] == (
        NodeType.COMM_COLL,
        ["bb", "ba"],
        ["reduce a and 1 more 1/3"],
    )
    assert nodes["ub"][1] == ["bb", "reduce a and 1 more 3/3"]


@given(data=st.data())
@examples(5)
def test_a_plan_for_servers_is_refused(data: st.DataObject) -> None:
    with pytest.raises(HocketError, match="has no collectives"):
        chakra_bytes(small(), data.draw(plans(small())))


def node(id_: int, name: str, type_: NodeType, **fields: Any) -> Any:
    made = Node(id=id_, name=name, type=type_)
    for key in ("ctrl_deps", "data_deps"):
        getattr(made, key).extend(fields.pop(key, ()))
    made.duration_micros = fields.pop("micros", 0)
    for key, value in fields.items():
        kind = (
            "bool_val" if isinstance(value, bool) else "int64_val" if isinstance(value, int) else "string_val"
        )
        set_attribute(made, key, kind, value)
    return made


def foreign() -> list[Any]:
    """A trace as the converter from PyTorch makes them: calls as control, order as data dependencies."""
    return [
        node(3, "aten::linear", NodeType.COMP, is_cpu_op=True, micros=50),
        node(4, "gemm", NodeType.COMP, ctrl_deps=[3], is_cpu_op=False, micros=100),
        node(
            7,
            "autograd::engine::evaluate_function: AddmmBackward0",
            NodeType.COMP,
            data_deps=[3],
            is_cpu_op=True,
        ),
        node(8, "gemm", NodeType.COMP, ctrl_deps=[7], data_deps=[4], is_cpu_op=False, micros=200),
        node(9, "all reduce", NodeType.COMM_COLL, data_deps=[8], comm_type=0, comm_size=4096, micros=900),
        node(12, "sgd", NodeType.COMP, data_deps=[9], is_cpu_op=False, micros=10),
        node(2, "broadcast", NodeType.COMM_COLL, comm_type=5, comm_size=64, micros=7),
    ]


def test_a_trace_of_another_tool(tmp_path: Path) -> None:
    graph, notes = back(write_messages([GlobalMetadata(version="0.0.4"), *foreign()]), tmp_path, "job.0.et")
    assert (graph.model, graph.device) == ("job", "cuda")
    names = ["aten::linear", "gemm", foreign()[2].name, "gemm.2", "sgd", "broadcast"]
    assert list(graph.operation_names) == names
    assert (graph.durations_s[:, 0] * 1e6).tolist() == pytest.approx([0, 100, 0, 200, 10, 7])
    assert [Phase(p).name for p in graph.phases] == [*["FORWARD"] * 2, *["BACKWARD"] * 2, "UPDATE", "FORWARD"]
    assert (graph.parameter_names, graph.parameter_bytes.tolist()) == (("bucket0",), [4096])
    assert [graph.inputs.row(i).tolist() for i in range(6)] == [[], [0], [0], [1, 2], [3], []]
    assert [graph.produces.row(i).tolist() for i in range(6)] == [[], [], [], [0], [], []]
    assert graph.reads.row(4).tolist() == [0]
    assert any("1 other collective:" in note for note in notes)


def test_flags_as_numbers_and_kinds_as_text_are_understood(tmp_path: Path) -> None:
    nodes = foreign()
    for made in nodes:
        for attribute in made.attr:
            if attribute.name == "is_cpu_op":
                attribute.int64_val = int(attribute.bool_val)
            elif attribute.name == "comm_type":
                attribute.string_val = CollectiveType(attribute.int64_val).name
    usual, _ = back(WHOLE, tmp_path)
    graph, notes = back(write_messages([GlobalMetadata(), *nodes]), tmp_path)
    assert step_document(graph) == step_document(usual)
    assert any("operators on the host take no time" in note for note in notes)


def test_compute_nodes_without_durations_are_counted_or_refused(tmp_path: Path) -> None:
    _, notes = back(WHOLE, tmp_path)
    assert not any("no duration" in note for note in notes)
    _, notes = back(damaged(1, duration_micros=0), tmp_path)
    assert any("1 of 3 compute nodes have no duration" in note for note in notes)
    nodes = foreign()
    for made in nodes:
        # The host's time does not count.
        made.duration_micros = 50 if made.name.startswith("a") else 0
    with pytest.raises(FormatError, match=r"^[^\n]*nodes: none of 3 compute nodes has a duration; [^\n]*$"):
        back(write_messages([GlobalMetadata(), *nodes]), tmp_path)


@pytest.mark.parametrize(
    "ending", ["BWD_IG", "BWD_WG", "bwd_ig", "bwd_wg", "weight_grad", "input_grad", "backward"]
)
def test_gradients_of_text_converters_are_of_the_backward_pass(ending: str, tmp_path: Path) -> None:
    nodes = [
        node(0, "COMP_NODE_conv_FWD", NodeType.COMP, micros=10),
        node(1, "COMP_NODE_big_FWD", NodeType.COMP, micros=10, data_deps=[0]),
        node(2, f"COMP_NODE_big_{ending}", NodeType.COMP, micros=20, data_deps=[1]),
        node(3, "COMM_COLL", NodeType.COMM_COLL, comm_type=0, comm_size=8, data_deps=[2]),
    ]
    graph, _ = back(write_messages([GlobalMetadata(), *nodes]), tmp_path)
    assert [Phase(p).name for p in graph.phases] == ["FORWARD", "FORWARD", "BACKWARD"]


def test_ranks_are_samples(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        nodes = foreign()
        nodes[1].duration_micros += rank
        paths.append(tmp_path / f"job.{rank}.et")
        paths[-1].write_bytes(write_messages([GlobalMetadata(), *nodes]))
    graph, _ = import_chakra(paths)
    assert (graph.durations_s[1] * 1e6).tolist() == pytest.approx([100, 101])
    nodes = foreign()
    nodes[4].attr[1].int64_val = 5
    paths[1].write_bytes(write_messages([GlobalMetadata(), *nodes]))
    with pytest.raises(FormatError, match=r"its collectives are not those of .*job\.0\.et"):
        import_chakra(paths)
    paths[1].write_bytes(write_messages([GlobalMetadata(), *foreign()[:-1]]))
    with pytest.raises(FormatError, match="its nodes or their dependencies"):
        import_chakra(paths)


def damaged(place: int, **fields: Any) -> bytes:
    nodes = foreign()
    for key, value in fields.items():
        if key.endswith("_deps"):
            getattr(nodes[place], key).extend(value)
        else:
            setattr(nodes[place], key, value)
    return write_messages([GlobalMetadata(), *nodes])


def test_control_dependencies_that_make_a_cycle_or_lead_nowhere_are_left_out(tmp_path: Path) -> None:
    for place, id_ in ((0, 8), (1, 4), (1, 999)):
        graph, notes = back(damaged(place, ctrl_deps=[id_]), tmp_path)
        # Without them the second kernel is known to follow the first one, and the host's operator.
        assert graph.inputs.row(3).tolist() == ([1] if id_ < 99 else [1, 2])
        assert any("control dependencies are left out" in note for note in notes) == (id_ < 99)


WHOLE = write_messages([GlobalMetadata(version="0.0.4"), *foreign()])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "nodes: the trace holds none"),
        (WHOLE[:-1], "begins where"),
        (b"\xff" * 30, "not a whole trace"),
        (b"\xff", "the file ends inside of a length"),
        (b'{"traceEvents": []}', "is a Kineto trace, which hocket import kineto reads"),
        (b'{\n  "schema": "1.1.1", "nodes": []}', "goes with its Kineto trace: hocket import kineto TRACE"),
        (b'\n {"schema": "1.1.1", "nodes": []}', "is an ExecutionTrace of PyTorch"),
        (b'[{"ph": "X", "cat": "kernel"}]', "is JSON, no Chakra trace; hocket import kineto reads"),
        (b"x" * 257 + b"ustar" + b"x" * 250, "is a tar archive; unpack it"),
        (write_messages([GlobalMetadata()]) + b"\x02\x08\xff", "node 0: is no message of the Chakra schema"),
        (damaged(3, data_deps=[99]), "'gemm' depends on 99, which is no node's id"),
        (damaged(0, data_deps=[7]), "the dependencies form a cycle"),
        (damaged(1, id=3), "id 3 is a duplicate"),
        (damaged(1, duration_micros=2**63), "is not a number of seconds between 0 and 1e9"),
    ],
)
def test_damage_is_refused_in_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as refused:
        back(data, tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'step.et'}: ")
    assert message in str(refused.value)


def test_a_collective_without_a_size_is_refused(tmp_path: Path) -> None:
    nodes = foreign()
    del nodes[4].attr[1]
    with pytest.raises(FormatError, match="comm_size None is not a number of bytes"):
        back(write_messages([GlobalMetadata(), *nodes]), tmp_path)


@given(place=st.integers(0, 10_000), new=st.binary(max_size=4), cut=st.integers(0, 4))
@examples(100)
def test_any_damage_is_served_or_refused(
    place: int, new: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    for whole in (WHOLE, chakra_bytes(small())):
        at = place % len(whole)
        # Whatever else is raised fails the test; that a HocketError is one line is its own rule.
        with contextlib.suppress(HocketError):
            back(whole[:at] + new + whole[at + cut :], folder)


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message on the wire: numbers, and contents as bytes."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        if key & 7 == 0:
            value, place = varint(data, place)
            yield key >> 3, value
        elif key & 7 == 2:
            size, place = varint(data, place)
            yield key >> 3, data[place : place + size]
            place += size
        else:
            width = 8 if key & 7 == 1 else 4
            yield key >> 3, data[place : place + width]
            place += width


def packed(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")
def test_a_real_trace_is_all_there(tmp_path: Path) -> None:
    with tarfile.open(DATA / "chakra_feeder_tests_trace.tar.gz") as archive:
        (name,) = (name for name in archive.getnames() if name.endswith(".et"))
        member = archive.extractfile(name)
        assert member is not None
        data = io.BytesIO(member.read()).getvalue()
    graph, notes = back(data, tmp_path, "chakra.0.et")
    counts: Counter[str] = Counter()
    seconds = place = 0
    size, place = varint(data, 0)
    place += size
    reduced = 0
    while place < len(data):
        size, place = varint(data, place)
        found = list(fields(data[place : place + size]))
        place += size
        counts["nodes"] += 1
        kind = next((value for number, value in found if number == 3), 0)
        counts["edges"] += len({i for number, value in found if number == 5 for i in packed(value)})
        attribute = {bytes(dict(fields(v))[1]): dict(fields(v)) for number, v in found if number == 10}
        if kind == 7 and b"comm_type" in attribute:
            counts["collectives"] += 1
            # comm_type 0 is an all-reduce.
            if next((v for n, v in attribute[b"comm_type"].items() if n > 2), 0) == 0:
                counts["all-reduces"] += 1
                reduced += next(v for n, v in attribute[b"comm_size"].items() if n > 2)
        elif kind == 4 and next((v for n, v in attribute[b"is_cpu_op"].items() if n > 2), 0) == 0:
            seconds += next((value for number, value in found if number == 7), 0)
    assert graph.num_parameters == counts["all-reduces"]
    assert graph.parameter_bytes.sum() == reduced
    assert graph.num_operations == counts["nodes"] - counts["all-reduces"]
    assert f"{counts['nodes']} nodes, {counts['edges']} dependencies" in notes[0]
    assert any("control dependencies are left out" in note for note in notes)
    assert (counts["collectives"], counts["all-reduces"], reduced) == (7, 5, 4 * 25_557_032)
    assert graph.durations_s.sum() >= seconds * 1e-6


def data_parallel(*more: Any) -> list[Any]:
    """Two layers whose gradients (96 bytes) are all-reduced, and ``more`` nodes, numbered from 20 on."""
    return [
        node(0, "fwd", NodeType.COMP, micros=10),
        node(1, "backward", NodeType.COMP, micros=20, data_deps=[0]),
        node(2, "backward", NodeType.COMP, micros=20, data_deps=[1]),
        node(3, "reduce", NodeType.COMM_COLL, comm_type=0, comm_size=32, data_deps=[1], pg_name="dp"),
        node(4, "reduce", NodeType.COMM_COLL, comm_type=0, comm_size=64, data_deps=[2], pg_name="dp"),
        node(5, "sgd", NodeType.COMP, micros=5, data_deps=[3, 4]),
        *more,
    ]


def collective(kind: CollectiveType, size: int, after: int, group: str = "dp") -> Any:
    return node(
        20, "other", NodeType.COMM_COLL, comm_type=int(kind), comm_size=size, data_deps=[after], pg_name=group
    )


@pytest.mark.parametrize(
    "more",
    [
        (),
        (collective(CollectiveType.BROADCAST, 4096, 0),),
        (collective(CollectiveType.ALL_GATHER, 4096, 0),),
        (collective(CollectiveType.REDUCE_SCATTER, 4096, 1, "tp"),),
    ],
)
def test_collectives_that_exchange_no_gradients_stay(more: tuple[Any, ...], tmp_path: Path) -> None:
    graph, _ = back(write_messages([GlobalMetadata(), *data_parallel(*more)]), tmp_path)
    assert sorted(graph.parameter_bytes.tolist()) == [32, 64]
    assert graph.num_operations == 4 + len(more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            collective(CollectiveType.REDUCE_SCATTER, 4096, 2),
            r"\(REDUCE_SCATTER, 4096 bytes\) run in the backward",
        ),
        (
            collective(CollectiveType.ALL_GATHER, 96, 5),
            r"no parameters: .*3 other collectives \(ALL_GATHER, ALL_REDUCE\)",
        ),
    ],
)
def test_collectives_that_may_exchange_them_are_refused(more: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message) as refused:
        back(write_messages([GlobalMetadata(), *data_parallel(more)]), tmp_path)
    assert "\n" not in str(refused.value)


def activations(*names: str) -> list[Any]:
    """Layers one after the other, each behind an all-reduce of the activations before it."""
    nodes: list[Any] = []
    for i, name in enumerate(names):
        before = [nodes[-1].id] if nodes else []
        nodes.append(node(2 * i, name, NodeType.COMP, micros=10, data_deps=before))
        reduced = {"comm_type": 0, "comm_size": 4096, "data_deps": [2 * i]}
        nodes.append(node(2 * i + 1, "all reduce", NodeType.COMM_COLL, **reduced))
    return nodes


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("layer",) * 5, r"no parameters: 0 all-reduces .*5 other collectives .*named so \(backward"),
        (
            ("layer", "layer_IG"),
            r"also sum up activations in the forward pass: 1 collective \(ALL_REDUCE, 4096",
        ),
        (("layer", "layer", "a_backward", "b_backward"), "also sum up activations in the forward pass"),
    ],
)
def test_all_reduces_of_activations_are_no_gradients(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=message) as refused:
        back(write_messages([GlobalMetadata(), *activations(*names)]), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE])
def test_a_trace_without_gradients_is_refused_or_looked_at(kind: CollectiveType, tmp_path: Path) -> None:
    size = 0 if kind == CollectiveType.ALL_REDUCE else 4096
    nodes = [*data_parallel()[:3], collective(kind, size, 2)]
    data = write_messages([GlobalMetadata(), *nodes])
    with pytest.raises(
        FormatError, match=r"no parameters: .*data-parallel training; or give --allow-no-grad"
    ):
        back(data, tmp_path)
    graph, notes = import_chakra([tmp_path / "step.et"], allow_no_gradients=True)
    assert (graph.num_parameters, graph.num_operations) == (0, 4)
    assert any("without parameters, so that nothing can be planned" in note for note in notes)


def test_a_trace_without_computing_is_refused(tmp_path: Path) -> None:
    nodes = [node(3, "reduce", NodeType.COMM_COLL, comm_type=0, comm_size=32, micros=5)]
    with pytest.raises(FormatError, match="none of 0 compute nodes has a duration"):
        back(write_messages([GlobalMetadata(), *nodes]), tmp_path)
