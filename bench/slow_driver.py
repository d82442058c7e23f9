"""A known slow-down of fastcos, with which bench.calibrate measures the error rates of the gate."""

import statistics


def spin(turns):
    for _ in range(turns):
        pass


class SlowDriver:
    """A kernel driver that is slowed down until a whole benchmark takes about a share longer.

    shares is one number, or a dict of the numbers for some benchmarks; the others are skipped. The
    driver adds empty loops: reading the CPU clock is a system call, and many of them slow down the
    code that follows.
    """

    # least share of the driver in a benchmark's time: below it the added loops scatter too much
    MIN_PART = 0.05
    # to measure that share, after as many warm-up calls
    CALLS = 10

    def __init__(self, shares, now):
        from fastcos import parallel

        self.shares, self.now, self.plain = shares, now, parallel.run
        self.added = self.spent = 0.0
        self.known = {}
        self.turns_per_second = statistics.median(
            20_000 / self.seconds(spin, 20_000) for _ in range(100)
        )
        parallel.run = self.run

    def seconds(self, call, *arguments, **named):
        started = self.now()
        call(*arguments, **named)
        return self.now() - started

    def run(self, *arguments, **named):
        taken = self.seconds(self.plain, *arguments, **named)
        self.spent += taken
        spin(int(self.added * taken * self.turns_per_second))

    def part(self, call):
        """Return the share of the driver in the time of some calls."""
        self.added = self.spent = 0.0
        taken = sum(self.seconds(call) for _ in range(self.CALLS))
        return self.spent / taken

    def tune(self, name, call):
        """Set the slow-down for a call; return whether the driver takes part in it."""
        if name not in self.known:
            share = self.shares.get(name, 0) if isinstance(self.shares, dict) else self.shares
            self.part(call)
            part = self.part(call)
            self.known[name] = share / part if part >= self.MIN_PART else 0.0
        self.added = self.known[name]
        return self.added > 0
