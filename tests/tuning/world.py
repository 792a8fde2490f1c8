"""A world whose clock only callables move: what it says of times is exact."""


class World:
    """A clock that only callables move."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def clock(self):
        """What time it is."""
        return self.now

    def seconds(self, call, calls):
        """Time calls, as a timer does."""
        start = self.now
        for _ in range(calls):
            call()
        return self.now - start

    def worker(self, name, *seconds):
        """A callable that takes these times, one after the other, over and over."""
        state = {"calls": 0}

        def call():
            self.now += seconds[state["calls"] % len(seconds)]
            state["calls"] += 1
            self.log.append(name)

        return call
