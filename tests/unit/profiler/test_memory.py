"""The access log against a twin that keeps a writer and the readers of every byte."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.profiler._memory import Extent, Memory

accesses = st.lists(
    st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 8), st.integers(0, 8)), max_size=25
)


@given(accesses)
def test_dependencies_cover_and_never_exceed_the_bytes_history(sequence):
    memory = Memory()
    writer, readers, touched = {}, {}, {}
    for operation, (writes, key, one, other) in enumerate(sequence):
        begin, end = sorted((one, other))
        cells = [(key, byte) for byte in range(begin, end)]
        found = (memory.write if writes else memory.read)(operation, Extent(key, begin, end))
        needed = {writer[cell] for cell in cells if cell in writer}
        if writes:
            needed |= {reader for cell in cells for reader in readers.get(cell, ())}
        assert needed <= found
        # A partly covered access may still be named, but only one that touched these bytes.
        assert found <= {earlier for cell in cells for earlier in touched.get(cell, ())}
        for cell in cells:
            touched.setdefault(cell, set()).add(operation)
            if writes:
                writer[cell], readers[cell] = operation, set()
            else:
                readers.setdefault(cell, set()).add(operation)
        if writes and cells:
            assert memory.last_writer(Extent(key, begin, end)) == operation


def test_a_covering_write_ends_the_history():
    memory = Memory()
    memory.write(0, Extent("s", 0, 8))
    memory.read(1, Extent("s", 0, 4))
    assert memory.write(2, Extent("s", 0, 8)) == {0, 1}
    assert memory.read(3, Extent("s", 2, 3)) == {2}


def test_an_operation_does_not_depend_on_itself():
    memory = Memory()
    memory.read(0, Extent("s", 0, 8))
    assert memory.write(0, Extent("s", 0, 8)) == set()


def test_memory_nobody_wrote_has_no_writer():
    memory = Memory()
    memory.read(0, Extent("s", 0, 8))
    assert memory.last_writer(Extent("s", 0, 8)) is None
    assert memory.last_writer(Extent("t", 0, 8)) is None
