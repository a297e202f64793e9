"""The queue of the cluster engine's naive twin: the order of jobs, and the GPUs that each gets."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from hocket.sim.draws import draw_number
from tests.naive.cluster_state import Run, State, exact


def decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


class Queue(State):
    """Jobs that are placed, or wait."""

    def by_servers(self, free: list[int], servers: list[int]) -> list[int]:
        """Free GPUs of servers in the order of their load, in that of their own."""
        of = {s: range(s * self.per_server, (s + 1) * self.per_server) for s in servers}
        ordered = sorted(servers, key=lambda s: (sum(self.load(g) for g in of[s]), s))
        return [g for s in ordered for g in sorted(of[s], key=lambda g: (self.load(g), g)) if g in free]

    def choose_number(self, run: Run) -> list[int] | None:
        """As many GPUs, of those that nobody else needs, as let it be over first; the fewest of these."""
        options = []
        for num in range(run.job.fewest_gpus, self.most(run) + 1):
            self.take_number(run, num)
            speed = run.speed
            found = self.choose(run)
            if found is not None:
                several = len({g // self.per_server for g in found}) > 1
                self.compute_at(run, self.speeds(run)[self.type[found[0]]])
                alone = run.remaining * (self.computing(run) + (self.reduce(run) if several else 0))
                options.append((alone, num, found))
            self.compute_at(run, speed)
        if not options:
            self.take_number(run, run.job.fewest_gpus)
            return None
        _, num, found = min(options, key=lambda option: option[:2])
        self.take_number(run, num)
        return found

    def most(self, run: Run) -> int:
        """The most GPUs that it may have, if it may have any."""
        of = {name: sum(self.type[g] == name for g in self.free(run)) for name in self.speeds(run)}
        beside = max(of.values()) - sum(self.needed(run, user) for user in {r.job.user for r in self.runs})
        within = self.quota(run.job.user) - self.held(run.job.user)
        return max(run.job.fewest_gpus, min(run.job.gpus, beside, within))

    def needed(self, run: Run, user: str) -> int:
        """The GPUs that are left to a user's other jobs: to those that could start, or have starved."""
        total = 0
        for other in self.runs:
            arrived_s = exact(other.job.arrival_s)
            if other is run or other.start is not None or arrived_s > self.now or other.job.user != user:
                continue
            starves = self.scheduling.starvation_s
            starving = starves is not None and self.now - arrived_s >= exact(starves)
            free, mine = self.free(other), self.speeds(run)
            of = [[self.type[g] for g in free].count(name) for name in self.speeds(other)]
            shared = [name for name in self.speeds(other) if name in mine]
            meets = any(self.could_fit(run, name) and self.could_fit(other, name) for name in shared)
            fits = max(of) >= other.job.fewest_gpus
            if meets and self.in_quota(other) and (starving or fits):
                total += other.job.fewest_gpus
        return min(total, self.quota(user) - self.held(user))

    def choose(self, run: Run) -> list[int] | None:
        """GPUs of the type on which it computes fastest, of those where it fits."""
        free, speeds, suits = self.free(run), self.speeds(run), run.speed
        of_type = {name: [g for g in free if self.type[g] == name] for name in speeds}
        fitting = [name for name in speeds if len(of_type[name]) >= run.num]
        if not fitting:
            return None
        speed = max(speeds[name] for name in fitting)
        equal = [name for name in fitting if speeds[name] == speed]
        self.compute_at(run, speed)
        if self.placement == "blocks":
            found = self.in_block(run, {name: of_type[name] for name in equal})
            if found is None:
                self.compute_at(run, suits)
            return found
        if self.placement == "earliest":
            options = [self.choose_from(run, of_type[name]) for name in equal]
            return min(options, key=lambda option: self.lost_time(run, option))
        first = self.choose_from(run, [g for g in free if self.type[g] in equal])[0]
        return self.choose_from(run, of_type[self.type[first]])

    def choose_from(self, run: Run, free: list[int]) -> list[int]:
        """The GPUs among these that the placement takes, in the order in which it does."""
        n = run.num
        servers = list(range(self.cluster.num_servers))
        anywhere = sorted(free, key=lambda g: (self.load(g), g))
        if self.placement == "ff":
            return free[:n]
        if self.placement == "ls":
            return anywhere[:n]
        if self.placement == "rand":
            return sorted(free, key=lambda g: (draw_number(self.seed, run.number, g), g))[:n]
        if self.placement.startswith("lwf-"):
            if n <= int(self.placement[4:]):
                return anywhere[:n]
            return self.by_servers(free, servers)[:n]
        assert self.placement == "earliest"
        options = [self.by_servers(free, [s]) for s in servers]
        if self.cluster.racks > 1:
            racks = [[s for s in servers if self.rack[s] == rack] for rack in range(self.cluster.racks)]
            options += [self.by_servers(free, rack) for rack in racks]
        options += [self.by_servers(free, servers), anywhere]
        options = [sorted(option[:n]) for option in options if len(option) >= n]
        return min(options, key=lambda option: self.lost_time(run, option))

    def in_block(self, run: Run, of_type: dict[str, list[int]]) -> list[int] | None:
        """GPUs of one of these types in a block; None while some block would have room."""
        size, n = 1, run.num
        while size * self.per_server < n:
            size *= 2
        servers = list(range(self.cluster.num_servers))
        blocks = [servers[first : first + size] for first in range(0, len(servers), size)]
        options = [self.by_servers(free, block)[:n] for free in of_type.values() for block in blocks]
        options = [option for option in options if len(option) == n]
        if options:
            return min(options, key=lambda option: self.lost_service(run, option))
        waited = self.now - exact(run.job.arrival_s)
        starving = self.scheduling.starvation_s is not None and waited >= exact(self.scheduling.starvation_s)
        large = [
            g
            for g in range(self.cluster.num_gpus)
            if self.memory[g] >= run.job.memory_bytes and not self.is_down(g // self.per_server)
        ]
        some_day = any(
            sum(self.type[g] == name and g // self.per_server in block for g in large) >= n
            for name in of_type
            for block in blocks
        )
        if some_day and not starving:
            return None
        first = self.by_servers([g for free in of_type.values() for g in free], servers)[0]
        return self.by_servers(of_type[self.type[first]], servers)[:n]

    def lost_service(self, run: Run, option: list[int]) -> Fraction:
        """The service before the job on its busiest server and GPU, and that which it delays there."""
        wide = run.num > self.per_server
        computing = run.remaining * self.computing(run)
        transfers = run.remaining * self.reduce(run) if wide else Fraction(0)
        service = (computing + transfers) * run.num

        def lost(there: list[list[tuple[Run, Fraction]]], own: Fraction) -> Fraction:
            first = [
                sum((work for other, work in each if self.service_left(other) <= service), Fraction(0))
                for each in there
            ]
            delayed = [sum(self.service_left(other) > service for other, _ in each) for each in there]
            return max(first) + max(delayed) * own

        here = self.placed()
        found = lost(
            [[(r, r.remaining * self.computing(r)) for r in here if g in r.gpus] for g in option], computing
        )
        if wide:
            links = {g // self.per_server for g in option}
            found += lost(
                [[(r, r.remaining * self.reduce(r)) for r in here if s in r.servers] for s in links],
                transfers,
            )
        return found

    def service_left(self, run: Run) -> Fraction:
        return run.remaining * self.per_iteration(run) * run.num

    def lost_time(self, run: Run, option: list[int]) -> Fraction:
        servers = {g // self.per_server for g in option}
        computing = run.iterations * self.computing(run)
        alone = computing
        if len(servers) > 1:
            shares = [Fraction(1 + self.users(("server", s))) for s in servers]
            racks = {self.rack[s] for s in servers}
            if len(racks) > 1:
                for rack in racks:
                    carried = self.capacity(("rack", rack)) * self.b
                    shares.append((1 + self.users(("rack", rack))) / carried)
            alone += run.iterations * self.exposed(run, max(shares))
        ahead, delayed = Fraction(0), 0
        for g in option:
            here = [other for other in self.placed() if g in other.gpus]
            left = {other: other.remaining * self.per_iteration(other) for other in here}
            first = [other for other in here if left[other] * other.num <= alone * run.num]
            ahead = max(ahead, sum((left[other] for other in first), Fraction(0)))
            delayed = max(delayed, len(here) - len(first))
        return alone + ahead + computing * delayed

    def held(self, user: str) -> int:
        """GPUs that jobs of a user hold."""
        return sum(run.num for run in self.placed() if run.job.user == user)

    def in_quota(self, run: Run) -> bool:
        user = run.job.user
        return self.kept.get(user, run) is run and self.held(user) + run.num <= self.quota(user)

    def quota(self, user: str) -> int:
        """The most GPUs that jobs of a user hold."""
        quotas = self.scheduling.quotas
        return quotas.get(user, quotas.get("*", 10**9))

    def keep_quota(self, run: Run) -> None:
        """Until the queue is placed no other job of the user is, if it has a quota."""
        if run.job.user in self.scheduling.quotas or "*" in self.scheduling.quotas:
            self.kept.setdefault(run.job.user, run)

    def had(self, user: str) -> Fraction:
        """GPU seconds of a user's jobs until now, as far as they count, over its share."""
        shares = self.scheduling.shares
        total = Fraction(0)
        for run in self.runs:
            if run.job.user != user:
                continue
            stays = list(run.stays)
            if run.start is not None:
                stays.append((run.start, self.now if run.finish is None else run.finish, run.num))
            total += sum((num * self.counted(start, end) for start, end, num in stays), Fraction(0))
        return total / shares.get(user, shares.get("*", 1))

    def counted(self, start: Fraction, end: Fraction) -> Fraction:
        """The integral from start to end of 2 ** (-age / half-life): of 1 without one."""
        half_life = self.scheduling.half_life_s
        if half_life is None:
            return end - start
        with localcontext(prec=60):
            log2, each = Decimal(2).ln(), exact(half_life)
            at_start, at_end = (-decimal((self.now - at) / each) * log2 for at in (start, end))
            return Fraction((at_end.exp() - at_start.exp()) / log2) * each

    def users_before(self, user: str) -> int:
        """Users who have had less than this one; with a half-life, by a billionth of it at least."""
        least = self.had(user)
        if self.scheduling.half_life_s is not None:
            least /= 1 + Fraction(1, 10**9)
        return sum(self.had(other) < least for other in {run.job.user for run in self.runs})

    def queue_key(self, run: Run) -> Any:
        if self.policy == "fair-share":
            return (-run.job.priority, self.users_before(run.job.user), self.key(run))
        return (-run.job.priority, self.key(run))

    def queue(self) -> list[Run]:
        return [r for r in self.runs if exact(r.job.arrival_s) <= self.now and r.start is None]

    def place_who_fits(self) -> None:
        """Place who fits; first those that have queued for long, which hold GPUs where they do not."""
        self.held_gpus, self.kept, self.promised = {}, {}, {}
        queue = self.queue()
        if self.scheduling.starvation_s is not None:
            since = self.now - exact(self.scheduling.starvation_s)
            starving = [run for run in queue if exact(run.job.arrival_s) <= since]
            for run in sorted(starving, key=lambda run: (run.job.arrival_s, run.job.id)):
                if self.in_quota(run):
                    if self.place_on(run, self.choose_number(run)):
                        continue
                    if not self.hold(run):
                        break
                self.keep_quota(run)
        held = dict(self.held_gpus)
        for run in sorted((run for run in queue if run.start is None), key=self.queue_key):
            if not self.in_quota(run):
                continue
            waits = self.scheduling.wait_for_faster and self.awaits(run) and self.fits(run)
            placed = not waits and self.place_on(run, self.choose_number(run))
            if not placed and not waits and held:
                self.held_gpus = {g: by for g, by in held.items() if not self.is_open(run, g, by)}
                placed = self.place_on(run, self.choose(run))
                self.held_gpus = dict(held)
            if not placed and self.policy == "strict-fifo":
                break

    def fits(self, run: Run) -> bool:
        free = [self.type[g] for g in self.free(run)]
        return any(free.count(name) >= run.num for name in self.speeds(run))

    def awaits(self, run: Run) -> bool:
        """True if it would be over first on GPUs that are not open to it; those are promised to it."""
        starvation_s = self.scheduling.starvation_s
        if starvation_s is not None and self.now - exact(run.job.arrival_s) >= exact(starvation_s):
            return False
        free, options = self.free(run), []
        for name, speed in self.speeds(run).items():
            service = self.service(run, speed)
            there = sorted(
                (max(Fraction(0) if g in free else self.load(g), self.promised.get(g, Fraction(0))), g)
                for g in range(self.cluster.num_gpus)
                if self.type[g] == name and self.memory[g] >= run.job.memory_bytes
                if g not in self.held_gpus and not self.is_down(g // self.per_server)
            )
            if sum(g in free for _, g in there) >= run.num:
                options.append((service, False, there))
            elif len(there) >= run.num:
                options.append((there[run.num - 1][0] + service, True, there))
        if not options:
            return False
        end, waits, there = min(options, key=lambda option: option[:2])
        if waits:
            self.promised |= {g: end for _, g in there[: run.num]}
        return waits

    def hold(self, run: Run) -> bool:
        waits = {
            g: Fraction(0) if self.has_room(g, run) else self.load(g)
            for g in range(self.cluster.num_gpus)
            if g not in self.held_gpus and self.memory[g] >= run.job.memory_bytes
            if not self.is_down(g // self.per_server)
        }
        options = []
        for name, speed in self.speeds(run).items():
            there = sorted((g for g in waits if self.type[g] == name), key=lambda g: (waits[g], g))
            if len(there) >= run.num:
                first = there[: run.num]
                options.append((waits[first[-1]] + self.service(run, speed), first))
        if not options:
            return False
        _, first = min(options, key=lambda option: option[0])
        reserved = self.now + waits[first[-1]]
        run.reserved = reserved if run.reserved is None else min(run.reserved, reserved)
        self.held_gpus |= dict.fromkeys(first, run)
        return True

    def is_open(self, run: Run, g: int, by: Run) -> bool:
        """True if the job may have a GPU that another one holds."""
        speeds = self.speeds(run)
        if self.type[g] not in speeds:
            return False
        end = self.now + run.launch + self.service(run, speeds[self.type[g]]) + self.load(g)
        assert by.reserved is not None
        return self.has_room(g, run) and (by is run or end <= by.reserved)

    def service(self, run: Run, speed: Fraction) -> Fraction:
        """The service left of a job that queues, at a speed of computing."""
        before = run.speed
        self.compute_at(run, speed)
        found = run.remaining * (self.computing(run) + (self.reduce(run) if run.num > 1 else 0))
        self.compute_at(run, before)
        return found

    def place_on(self, run: Run, gpus: list[int] | None) -> bool:
        """Place a job on these GPUs, if there are any."""
        if gpus is None:
            return False
        run.gpus, run.start = sorted(gpus), self.now
        run.first_start = self.now if run.first_start is None else run.first_start
        assert len({self.type[g] for g in gpus}) == 1
        self.compute_at(run, self.speeds(run)[self.type[gpus[0]]])
        servers = sorted({g // self.per_server for g in gpus})
        run.servers = servers if len(servers) > 1 else []
        run.overlaps = bool(run.servers and run.job.batches)
        run.piece = dict.fromkeys(run.gpus, 0)
        run.phase = dict.fromkeys(run.gpus, "waits" if run.overlaps else "forward")
        vacated = [self.vacated.get(g, self.now) for g in gpus]
        run.launches_for = run.launch + max(self.now, run.saved_at, *vacated) - self.now
        if run.launches_for:
            run.phase = dict.fromkeys(run.gpus, "launches")
            run.launched = self.now + run.launches_for
        return True
