"""A made-up training run of two layers, as ranks record it, and the simulation of its step."""

from hocket.graph.timeline import Lane, Span, Timeline

# Seconds of a step: forward, backward and what each layer's update waits for.
PIECES = (
    ("forward", "forward start", 0.0, 0.1),
    ("wait", "wait a.weight", 0.1, 0.4),
    ("update", "update a.weight", 0.4, 0.5),
    ("forward", "forward a", 0.5, 1.0),
    ("wait", "wait b.weight", 1.0, 1.2),
    ("update", "update b.weight", 1.2, 1.3),
    ("forward", "forward b", 1.3, 1.8),
    ("backward", "backward b.weight", 1.8, 2.6),
    ("backward", "backward a.weight", 2.6, 3.4),
    ("backward", "backward between steps", 3.4, 3.5),
)
TRANSFERS = (("reduce", "b.weight", 2.6, 3.1), ("reduce", "a.weight", 3.4, 3.9))
OPERATIONS = (
    ("update", "update/a.weight/add_", 0.4, 0.5),
    ("forward", "forward/a/mm", 0.5, 1.0),
    ("update", "update/b.weight/add_", 1.2, 1.3),
    ("forward", "forward/b/mm", 1.3, 1.8),
    ("backward", "backward/b/mm", 1.8, 2.6),
    ("backward", "backward/a/mm", 2.6, 3.4),
)


def fake_training(*, workers=2, steps=4, names=str):
    """``steps`` steps of 3.5 s, and the begin of one more; ``names`` makes the name of each layer's spans."""
    lanes, spans = [], []
    for w in range(workers):
        lanes += [Lane(process=f"worker {w}", name="compute"), Lane(process=f"worker {w}", name="network 1")]
        for step in range(steps + 1):
            for lane, pieces in ((2 * w, PIECES), (2 * w + 1, TRANSFERS)):
                spans += [
                    Span(lane, names(name), kind, 3.5 * step + begin, 3.5 * step + end)
                    for kind, name, begin, end in pieces
                ]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(title="two layers, measured", lanes=tuple(lanes), spans=tuple(spans))


def fake_simulation(*, workers=2, names=str):
    """One step of the same, as the simulator draws it."""
    lanes = [Lane(process=f"worker {w}", name="compute") for w in range(workers)]
    lanes.append(Lane(process="network", name="reductions"))
    spans = [
        Span(w, names(name), kind, begin, end)
        for w in range(workers)
        for kind, name, begin, end in OPERATIONS
    ]
    spans += [Span(workers, names(name), kind, begin, end) for kind, name, begin, end in TRANSFERS]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(title="two layers, simulated", lanes=tuple(lanes), spans=tuple(spans))
