"""The rule by which plans that take turns leave a trial, until one is ahead by more than chance explains.

It sees nothing but seconds of steps, so that it can be tried on made-up machines.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from statistics import median, stdev

STEPS_PER_TURN = 2
"""Steps of a turn that are timed; the one before them still ends the last plan's transfers."""
WORTH = 0.98
"""The share of another plan's time that one which runs on into the next forward pass has to stay below."""
_SLOW = 1.10  # times DDP's slowest turn: a plan that takes longer in its first turn has no other
_SURE = 2.5  # standard errors that one has to be ahead by
_OUT_AT_ONCE = 3.0  # standard errors by which the last of many is behind in the first round, and goes
_LEAD = 3  # turns that one has to win more often than the other
_EVEN = 0.04  # or both of its turns, with gains that differ by no more than this
_ALIKE = 0.025  # a difference that is known this well after two turns is known well enough
_ALIKE_LATER = 0.015  # and this well after more, where the baseline is one of the two
_LEAST_NOISE = 0.01  # of a step's time; a few steps that are alike by chance show less
_SPARED = 1.0  # standard errors that the baseline may be behind more than others before it goes
_CLIP = 1.5  # times the noise: a step further off counts as if it were so far off (Huber)
_EFFICIENCY = 1.05  # of a mean of clipped values beside a mean


class Race:
    """A race of plans, of which number 0 is the baseline and is always first to start.

    ``runs_on``: of each plan, whether its transfers may run on; ``baseline_turns``: seconds of steps under
    the baseline that went before; ``most_steps``: how many steps there are, the untimed ones included.

    A disturbance makes a step longer, never shorter, so in a turn the faster step counts where turns are
    compared one by one, and over all turns a mean in which no step counts as far off. Plans are compared in
    turns of the same rounds, which run backwards every other time: what changes slowly disturbs all alike.

    ``left``: plans that may still win, the winner alone at the end; ``winner``; ``sure``: whether it was
    ahead by more than chance explains, or known to be as fast as any.
    """

    def __init__(
        self, runs_on: Sequence[bool], baseline_turns: Sequence[Sequence[float]], most_steps: int
    ) -> None:
        self.left = list(range(len(runs_on)))
        self.winner, self.sure = 0, False
        self.seconds: list[list[Sequence[float]]] = [[] for _ in runs_on]
        self.steps_left = most_steps
        self._handicap = [-math.log(WORTH) if each else 0.0 for each in runs_on]
        self._before = list(baseline_turns)
        self._judged = list(self.left)  # those that the last judgement compared

    def turns(self) -> Generator[int, Sequence[float], None]:
        """The plan that has the next turn; of its turn the seconds of each timed step are sent."""
        order, running, round_number = list(self.left), 0, 0
        while len(self.left) > 1 and not self.sure:
            round_number += 1
            # The second begins with the baseline again, which then has a turn on both sides of all others'.
            order = [k for k in (order if round_number <= 2 else order[::-1]) if k in self.left]
            if self.steps_left < sum(map(self.steps_of, order, [running, *order])):
                break
            for k in order:
                if k not in self.left:
                    continue
                self.steps_left -= self.steps_of(k, running)
                running = k
                self.seconds[k].append((yield k))
                if round_number == 2 and k == 0:
                    self.left = [other for other in self.left if not self._is_slow(other)]
            self._judge(round_number)
        self.sure = self.sure or len(self.left) == 1
        self.winner = self._leader()

    @staticmethod
    def steps_of(k: int, running: int) -> int:
        """The steps of a turn of plan ``k`` where ``running`` is in force."""
        return STEPS_PER_TURN + (k != running)

    def lead(self, over: int) -> tuple[float, float]:
        """The winner's share of the time of plan ``over`` in all turns of both, and what chance may add."""
        error = _SURE * self._error(self.winner, over)
        return math.exp(self._place(self.winner) - self._place(over)), error

    def rival(self) -> int:
        """The plan that came nearest to the winner, of those with the most turns."""
        others = [k for k in range(len(self.seconds)) if k != self.winner and self.seconds[k]]
        return max(others, key=lambda k: (len(self.seconds[k]), -self._score(k)))

    def _judge(self, round_number: int) -> None:
        """Leave out who is behind by more than chance explains; end it where that is known well enough."""
        if len(self.left) < 2:
            return
        self._judged = list(self.left)
        leader = self._leader()
        if round_number == 1:
            if len(self.left) > 3:
                fastest = {k: math.log(min(self.seconds[k][0])) for k in self.left}
                last = max(self.left[1:], key=lambda k: fastest[k])
                behind = fastest[last] - min(fastest.values())
                if behind > _OUT_AT_ONCE * self._error(last, leader):
                    self.left.remove(last)
            return
        self.left = [k for k in self.left if k == leader or not self._is_behind(k, leader)]
        others = [k for k in self.left if k != leader]
        self.sure = all(self._is_alike(k, leader) for k in others)
        if len(others) > 1 and not self.sure:
            # The baseline goes later than others: it is what everybody had.
            margin = {k: _SPARED * self._error(k, leader) if k == 0 else 0.0 for k in others}
            self.left.remove(max(others, key=lambda k: self._score(k) - margin[k]))

    def _is_slow(self, k: int) -> bool:
        """Tell whether the only turn of ``k`` took so much longer than any of the baseline's."""
        slowest = max(min(turn) for turn in (*self._before, *self.seconds[0]))
        return k != 0 and min(self.seconds[k][0]) > _SLOW * slowest

    def _is_behind(self, k: int, leader: int) -> bool:
        if self._score(k) - self._score(leader) <= _SURE * self._error(k, leader):
            return False
        handicap = self._handicap[k] - self._handicap[leader]
        gains = [gain + handicap for gain in self._gains(k, leader)]
        won = sum(gain > 0 for gain in gains)
        if won == len(gains) == 2:
            return max(gains) - min(gains) <= _EVEN
        return 2 * won - len(gains) >= _LEAD

    def _is_alike(self, k: int, leader: int) -> bool:
        """Tell whether the difference of the two is known as well as it has to be."""
        gains, error = self._gains(k, leader), _SURE * self._error(k, leader)
        if len(gains) == 2:
            return error <= _ALIKE and max(gains) - min(gains) <= _EVEN
        enough = _ALIKE_LATER if 0 in self.left else _ALIKE
        return max(error, _SURE * stdev(gains) / math.sqrt(len(gains))) <= enough

    def _gains(self, k: int, leader: int) -> list[float]:
        """The logarithm of what ``k`` took over what ``leader`` did, round by round."""
        return [
            math.log(min(theirs) / min(ours))
            for theirs, ours in zip(self.seconds[k], self.seconds[leader], strict=False)
        ]

    def _leader(self) -> int:
        return min(self.left, key=self._score)

    def _score(self, k: int) -> float:
        return self._place(k) + self._handicap[k]

    def _place(self, k: int) -> float:
        """The mean logarithm of the seconds of a step of ``k``, far ones clipped."""
        values, reach = _logs(self.seconds[k]), _CLIP * self._noise()
        place = median(values)
        for _ in range(5):
            place = sum(min(max(v, place - reach), place + reach) for v in values) / len(values)
        return place

    def _noise(self) -> float:
        """The deviation of a step's logarithm from its plan's, of half of the steps, as of a normal one."""
        # At the end, with the steps of those that lost last, too: by them it was decided.
        plans = self.left if len(self.left) > 1 else self._judged
        kinds = [_logs(turns) for turns in (*(self.seconds[k] for k in plans), self._before) if turns]
        off = [abs(v - middle) for values in kinds for middle in [median(values)] for v in values]
        free = max(len(off) - len(kinds), 1)
        return max(1.4826 * median(off) * math.sqrt(len(off) / free), _LEAST_NOISE)

    def _error(self, a: int, b: int) -> float:
        """The standard error of the difference of two plans' places."""
        counts = [sum(map(len, self.seconds[k])) for k in (a, b)]
        return _EFFICIENCY * self._noise() * math.sqrt(sum(1 / count for count in counts))


def _logs(turns: Sequence[Sequence[float]]) -> list[float]:
    return [math.log(max(seconds, 1e-9)) for turn in turns for seconds in turn]
