"""What the timers measure, the CUDA one with events that a counter drives."""

import pytest
import torch

from hocket.errors import HocketError
from hocket.profiler import _timer
from hocket.profiler._timer import CallTimes, CudaTimer, HostTimer, PlainClock, make_timer


def test_a_step_splits_into_calls_and_the_time_before_them():
    times = CallTimes(
        begins_s=torch.tensor([1.0, 3.0, 6.0, 9.0]).numpy(),
        ends_s=torch.tensor([2.0, 5.0, 7.0, 12.0]).numpy(),
        step_s=13.0,
    )
    own, before = times.of([1, 3])
    assert own.tolist() == [2.0, 3.0]
    assert before.tolist() == [3.0, 5.0]  # 0 to 3; 5 to 9, and 12 to 13
    assert own.sum() + before.sum() == times.step_s


def test_the_host_timer_sees_every_call_in_order():
    x = torch.ones(3)
    with HostTimer() as timer:
        (x + 1).view(3).mul_(2)
    assert [str(call) for call in timer.calls] == ["aten.add.Tensor", "aten.view.default", "aten.mul_.Tensor"]
    times = timer.times()
    assert (times.ends_s > times.begins_s).all()
    assert (times.begins_s[1:] >= times.ends_s[:-1]).all()
    assert 0 <= times.begins_s[0] < times.ends_s[-1] <= times.step_s


def test_the_cuda_timer_reads_its_events_after_synchronizing(monkeypatch):
    clock = {"ms": 0.0, "synchronized": False}

    class Event:
        def record(self):
            clock["ms"] += 1.0
            clock["synchronized"] = False
            self.ms = clock["ms"]

        def elapsed_time(self, end):
            assert clock["synchronized"]
            return end.ms - self.ms

    monkeypatch.setattr(_timer, "_event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: clock.update(synchronized=True))
    with CudaTimer() as timer:
        torch.ones(3).add_(1)
    times = timer.times()
    assert times.begins_s.tolist() == pytest.approx([1e-3, 3e-3])
    assert times.ends_s.tolist() == pytest.approx([2e-3, 4e-3])
    assert times.step_s == pytest.approx(5e-3)


def test_what_is_paused_takes_no_time(monkeypatch):
    readings = iter(range(0, 10**6, 1000))  # a microsecond each
    monkeypatch.setattr(_timer, "perf_counter_ns", lambda: next(readings))
    x = torch.ones(3)
    with HostTimer() as timer:  # 0
        x + 1  # 1 to 2
        timer.pause()  # 3
        x * 2
        next(readings)
        next(readings)
        timer.resume()  # 6
        x - 1  # 7 to 8
    assert [str(call) for call in timer.calls] == ["aten.add.Tensor", "aten.sub.Tensor"]
    times = timer.times()
    assert times.begins_s.tolist() == pytest.approx([1e-6, 4e-6])
    assert times.ends_s.tolist() == pytest.approx([2e-6, 5e-6])
    assert times.step_s == pytest.approx(6e-6)

    with PlainClock("cpu") as clock:  # 0
        next(readings)
        clock.pause()  # 2
        next(readings)
        clock.resume()  # 4
    assert clock.step_s == pytest.approx(3e-6)


def test_what_is_paused_takes_no_time_on_cuda(monkeypatch):
    clock = iter(range(100))

    class Event:
        def record(self):
            self.ms = float(next(clock))

        def elapsed_time(self, end):
            return end.ms - self.ms

    monkeypatch.setattr(_timer, "_event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    x = torch.ones(3)
    with CudaTimer() as timer:  # 0
        x + 1  # 1 to 2
        timer.pause()  # 3
        x * 2
        next(clock)
        timer.resume()  # 5
        x - 1  # 6 to 7
    assert [str(call) for call in timer.calls] == ["aten.add.Tensor", "aten.sub.Tensor"]
    times = timer.times()
    assert times.begins_s.tolist() == pytest.approx([1e-3, 4e-3])
    assert times.ends_s.tolist() == pytest.approx([2e-3, 5e-3])
    assert times.step_s == pytest.approx(6e-3)


def test_each_device_has_its_timer():
    assert isinstance(make_timer("cpu"), HostTimer)
    with pytest.raises(HocketError, match="device 'mps' cannot be profiled; move the model to cpu or cuda"):
        make_timer("mps")
