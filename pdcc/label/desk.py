"""Between the pages and what is kept: hand out a pair, keep its answer, take it back."""

import threading
from collections.abc import Iterable
from typing import Any

from pdcc.errors import ArtifactError
from pdcc.label.items import Items
from pdcc.label.queue import Pair, Queue, Ticket
from pdcc.label.store import Answer, Store

LONGEST_NAME = 80


class Refused(Exception):
    """A request that is not granted: the HTTP status, and a sentence for the person at the page."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Desk:
    """One store, one queue, one set of items; its methods may be called by any thread."""

    def __init__(self, store: Store, queue: Queue, items: Items, *, goal: int | None = None):
        self.store, self.queue, self.items, self.goal = store, queue, items, goal
        # From looking at a key or ticket until it is kept: sent twice at once, an answer must not be kept twice.
        self._one_at_a_time = threading.Lock()

    def progress(self, annotator: str) -> dict[str, Any]:
        """Answers by this annotator and in all, the goal, and which answer "undo" would withdraw."""
        store = self.store
        return {
            "mine": store.count(annotator), "all": store.count(), "goal": self.goal, "undo": store.latest(annotator),
        }  # fmt: skip

    def next(self, client: str, annotator: str) -> dict[str, Any]:
        """The next pair for a page."""
        with self._one_at_a_time:
            return self._next(client, annotator)

    def answer(self, *, ticket: str, answer: str, key: str, client: str, annotator: str) -> dict[str, Any]:
        """Keep an answer, then the next pair. The same key again keeps nothing more and succeeds."""
        with self._one_at_a_time:
            before = self.store.find(key)
            if before is not None:
                if (before.answer, before.annotator) != (answer, annotator):
                    raise Refused(409, "This key belongs to another answer. Nothing was kept.")
                return self._next(client, annotator)
            held = self.queue.find(ticket)
            if held is None:
                raise Refused(404, "This pair is no longer waiting for your answer. Nothing was kept.")
            if (held.client, held.annotator) != (client, annotator):
                raise Refused(409, "This pair was handed to somebody else. Nothing was kept.")
            pair, ids = held.pair, self.items.ids
            self.store.add(Answer(key, ids[pair.i], ids[pair.j], answer, annotator, pair.chosen_by, pair.probability))
            self.queue.settle(held)
            return self._next(client, annotator)

    def undo(self, *, key: str, client: str, annotator: str) -> dict[str, Any]:
        """Withdraw an answer, and show its pair again. Withdrawn before, it stays so, and the next pair is shown."""
        with self._one_at_a_time:
            before = self.store.find(key)
            if before is None or before.annotator != annotator:
                raise Refused(404, "There is no such answer of yours to withdraw.")
            if not self.store.withdraw(key):
                return self._next(client, annotator)
            pair = _pair(before, self.items)
            return self._page(self.queue.reopen(pair, client, annotator), annotator)

    def _next(self, client: str, annotator: str) -> dict[str, Any]:
        return self._page(self.queue.hand_out(client, annotator), annotator)

    def _page(self, ticket: Ticket | None, annotator: str) -> dict[str, Any]:
        pair = None
        if ticket is not None:
            sides = (self.items.shown(ticket.pair.i), self.items.shown(ticket.pair.j))
            pair = {"ticket": ticket.name, "left": sides[0], "right": sides[1]}
        return {"pair": pair, "progress": self.progress(annotator)}


def clean_name(name: object) -> str | None:
    """An annotator's name with single spaces in it; None where it is not text that can be shown, or too long."""
    text = " ".join(name.split()) if isinstance(name, str) else ""
    return text if text and len(text) <= LONGEST_NAME and text.isprintable() else None


def _pair(answer: Answer, items: Items) -> Pair:
    return Pair(items.rows[answer.i], items.rows[answer.j], answer.chosen_by, answer.probability)


def answered_pairs(store: Store, items: Items) -> Iterable[tuple[Pair, str]]:
    """What was answered before, as rows of these items, and by whom. Raises ``ArtifactError`` where it was about other items."""
    for answer in store.kept():
        if lost := {answer.i, answer.j} - items.rows.keys():
            raise ArtifactError(
                f"{store.path}: expected answers about these {len(items)} items, found one about {min(lost)!r}. Name the features it belongs to, or choose another --store."
            )
        yield _pair(answer, items), answer.annotator
