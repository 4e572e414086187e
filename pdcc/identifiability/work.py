"""A budget counted in arithmetic, so that an answer does not depend on how busy the machine is."""

import time


class Budget:
    """So much work and no more. A unit is what an ordinary core does in about a second; it is counted from the sizes of
    what is computed, never measured. ``deadline`` (on ``time.perf_counter``) ends everything besides, where one is set.
    """

    def __init__(self, work: float, deadline: float | None = None):
        self.limit, self.done, self.deadline = work, 0.0, deadline

    def spend(self, work: float) -> None:
        """Count work that was done."""
        self.done += work

    @property
    def left(self) -> float:
        """Units still to be had; 0 once the deadline has passed."""
        late = self.deadline is not None and time.perf_counter() > self.deadline
        return 0.0 if late else max(0.0, self.limit - self.done)

    @property
    def exhausted(self) -> bool:
        """Whether to stop."""
        return self.left == 0.0

    def restrict(self, work: float) -> None:
        """Allow at most ``work`` more from here on."""
        self.limit = min(self.limit, self.done + work)
