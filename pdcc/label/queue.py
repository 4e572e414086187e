"""Who is asked which pair: each pair goes to as many annotators as wanted, and back when one does not answer."""

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pdcc.arrays import Ints
from pdcc.label.sources import NextPairs, check_table

logger = logging.getLogger(__name__)
# Pairs kept ready; and how many answers come in before those are chosen anew.
AHEAD, REFRESH = 32, 16
# Seconds an annotator has before a pair may go to another.
PATIENCE = 600.0


@dataclass(frozen=True)
class Pair:
    """Two rows, how they were chosen, and the chance of that (None where it is not known)."""

    i: int
    j: int
    chosen_by: str
    probability: float | None

    @property
    def rows(self) -> tuple[int, int]:
        """The same for both sides."""
        return min(self.i, self.j), max(self.i, self.j)


@dataclass(frozen=True)
class Ticket:
    """A pair in the hands of an annotator, at one open page (``client``), until ``expires``."""

    name: str
    pair: Pair
    client: str
    annotator: str
    expires: float


class Queue:
    """Hands pairs out. ``source`` is asked in a thread of its own; while it is busy or fails, ``fallback`` gives the next pair.

    answered: pairs that annotators answered before, to go on with. exclude: (M, 2) rows that nobody is asked about.
    overlap: how many different annotators answer each pair.
    """

    def __init__(
        self,
        n_items: int,
        source: NextPairs | None,
        *,
        fallback: NextPairs,
        answered: Iterable[tuple[Pair, str]] = (),
        exclude: Ints | None = None,
        overlap: int = 1,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._n_items, self._source, self._fallback = n_items, source, fallback
        self._overlap, self._patience, self._clock = overlap, patience, clock
        self._exclude = np.empty((0, 2), np.int64) if exclude is None else np.asarray(exclude, np.int64)
        self._excluded = set(map(tuple, np.sort(self._exclude, axis=1).tolist()))
        # By the rows of a pair: annotators who answered it, how many hold it now, and those that wait for an annotator.
        self._answered: dict[tuple[int, int], set[str]] = {}
        self._held: Counter[tuple[int, int]] = Counter()
        self._waiting: dict[tuple[int, int], Pair] = {}
        self._tickets: dict[str, Ticket] = {}  # the oldest first
        self._ahead: deque[Pair] = deque()
        self._since = 0
        self._lock = threading.Condition()
        self._stopped, self._wanted = False, True
        for pair, annotator in answered:
            self._answered.setdefault(pair.rows, set()).add(annotator)
            self._wait_or_not(pair)
        self._thread = threading.Thread(target=self._refresh_when_wanted, name="pdcc-label-pairs", daemon=True)
        if source is not None:
            self._thread.start()

    def close(self) -> None:
        """End the thread; a source that is at work is not waited for."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def hand_out(self, client: str, annotator: str) -> Ticket | None:
        """A pair for this annotator: the one this client holds, or one that was given up, waits, or is new. None: there is none now."""
        with self._lock:
            mine = [t for t in self._tickets.values() if t.client == client]
            for ticket in reversed(mine):
                if ticket.annotator == annotator:
                    return self._renewed(ticket)
                self._drop(ticket)  # another person sits there now
            pair = self._given_up(annotator) or self._further(annotator) or self._new()
            return None if pair is None else self._lend(pair, client, annotator)

    def find(self, name: str) -> Ticket | None:
        """The ticket of this name, though its time may be over, unless its pair went to another."""
        with self._lock:
            return self._tickets.get(name)

    def settle(self, ticket: Ticket) -> None:
        """Its annotator has answered."""
        with self._lock:
            self._drop(ticket)
            self._answered.setdefault(ticket.pair.rows, set()).add(ticket.annotator)
            self._wait_or_not(ticket.pair)
            self._since += 1
            if self._since >= REFRESH:
                self._since, self._wanted = 0, True
                self._lock.notify_all()

    def reopen(self, pair: Pair, client: str, annotator: str) -> Ticket:
        """The annotator took an answer back: the pair is theirs again."""
        with self._lock:
            self._answered.get(pair.rows, set()).discard(annotator)
            for ticket in [t for t in self._tickets.values() if t.pair.rows == pair.rows and t.annotator == annotator]:
                self._drop(ticket)
            return self._lend(pair, client, annotator)

    def _lend(self, pair: Pair, client: str, annotator: str) -> Ticket:
        name = secrets.token_urlsafe(12)
        ticket = self._tickets[name] = Ticket(name, pair, client, annotator, self._clock() + self._patience)
        self._held[pair.rows] += 1
        self._wait_or_not(pair)
        return ticket

    def _renewed(self, ticket: Ticket) -> Ticket:
        del self._tickets[ticket.name]
        expires = self._clock() + self._patience
        ticket = Ticket(ticket.name, ticket.pair, ticket.client, ticket.annotator, expires)
        self._tickets[ticket.name] = ticket
        return ticket

    def _drop(self, ticket: Ticket) -> None:
        if self._tickets.pop(ticket.name, None) is not None:
            self._held[ticket.pair.rows] -= 1
            self._wait_or_not(ticket.pair)

    def _wait_or_not(self, pair: Pair) -> None:
        """Have the pair wait for an annotator if, and only if, fewer than wanted hold it or answered it."""
        have = len(self._answered.get(pair.rows, ())) + self._held[pair.rows]
        if have < self._overlap:
            self._waiting.setdefault(pair.rows, pair)
        else:
            self._waiting.pop(pair.rows, None)
        if not self._held[pair.rows]:
            del self._held[pair.rows]

    def _may(self, annotator: str, pair: Pair) -> bool:
        return annotator not in self._answered.get(pair.rows, ()) and not any(
            t.pair.rows == pair.rows and t.annotator == annotator for t in self._tickets.values()
        )

    def _given_up(self, annotator: str) -> Pair | None:
        now = self._clock()
        for ticket in list(self._tickets.values()):
            if ticket.expires > now:
                return None
            if ticket.annotator == annotator or self._may(annotator, ticket.pair):
                self._drop(ticket)
                return ticket.pair
        return None

    def _further(self, annotator: str) -> Pair | None:
        return next((pair for pair in self._waiting.values() if self._may(annotator, pair)), None)

    def _new(self) -> Pair | None:
        while self._ahead:
            if self._is_new(pair := self._ahead.popleft()):
                return pair
        found = self._read(self._fallback(1 if self._source else AHEAD, self._taken()))
        self._ahead.extend(found[1:])
        return found[0] if found else None

    def _is_new(self, pair: Pair) -> bool:
        rows = pair.rows
        return not (rows in self._answered or rows in self._held or rows in self._waiting or rows in self._excluded)

    def _read(self, table: pd.DataFrame) -> list[Pair]:
        """The pairs of a table that nobody has had."""
        found = [
            Pair(int(i), int(j), str(chosen_by), None if pd.isna(chance) else float(chance))
            for i, j, _, chosen_by, chance in check_table(table, self._n_items).itertuples(index=False)
        ]
        return [pair for pair in found if self._is_new(pair)]

    def _taken(self) -> Ints:
        rows = [*self._answered, *self._held, *self._waiting]
        return np.concatenate([self._exclude, np.array(rows, np.int64).reshape(-1, 2)])

    def _refresh_when_wanted(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                self._wanted, taken = False, self._taken()
            try:
                found = self._source(AHEAD, taken) if self._source else None
                with self._lock:
                    if found is not None and not self._stopped:
                        self._ahead = deque(self._read(found))
            except Exception as error:  # of any kind: people go on answering
                logger.warning("no pairs were suggested (%s); random ones are asked meanwhile", error)
