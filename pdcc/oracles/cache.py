"""What machines answered, on disk as it arrives: no pair is paid for twice."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pdcc.oracles.protocol import Answered
from pdcc.storage.database import Database


@dataclass(frozen=True)
class Question:
    """Two items by their ids as text, in an order that does not depend on who comes first, and a digest of what is known of them."""

    a: str
    b: str
    content: str


class Cache(Database):
    """Answers by oracle, version and unordered pair."""

    application, version = 0x70646F72, 1  # "pdor"
    tables = (
        """CREATE TABLE answers (
            oracle TEXT NOT NULL,
            version TEXT NOT NULL,
            a TEXT NOT NULL,
            b TEXT NOT NULL,
            content TEXT NOT NULL,
            degree REAL CHECK (degree BETWEEN 0 AND 1),
            cost REAL NOT NULL CHECK (cost >= 0),
            time TEXT NOT NULL,
            PRIMARY KEY (oracle, version, a, b, content)
        ) WITHOUT ROWID""",
    )
    holds, option = "machines' answers", "--cache"

    def of(self, oracle: str, version: str) -> dict[Question, Answered]:
        """Everything that this version of an oracle answered."""
        query = "SELECT a, b, content, degree, cost FROM answers WHERE oracle = ? AND version = ?"
        with self._lock, self._reported():
            rows = self._base.execute(query, (oracle, version)).fetchall()
        return {Question(a, b, content): Answered(degree, cost) for a, b, content, degree, cost in rows}

    def keep(self, oracle: str, version: str, answers: Iterable[tuple[Question, Answered]]) -> None:
        """Keep answers, all of them or none: they are on disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        rows = [(oracle, version, q.a, q.b, q.content, said.degree, said.cost, now) for q, said in answers]
        with self._lock, self._reported():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._base.executemany("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                self._base.execute("COMMIT")
            except BaseException:
                self._base.execute("ROLLBACK")
                raise


def question(ids: tuple[str, str], shown: tuple[Any, Any]) -> Question:
    """The question about two items with these ids, of which this is known."""
    one, other = sorted(zip(ids, map(digest, shown), strict=True))
    told = one[1] + other[1]
    return Question(one[0], other[0], hashlib.sha256(told.encode()).hexdigest()[:32] if told else "")


def digest(item: Any) -> str:
    """What tells the content of an item from another's, so that changed items are asked about anew; "" where only its id can."""
    if isinstance(item, np.ndarray) and item.dtype != object:
        head, body = f"{item.dtype} {item.shape}", np.ascontiguousarray(item).tobytes()
    elif isinstance(item, bytes):
        head, body = "bytes", item
    else:
        try:
            head, body = "json", json.dumps(_plain(item), sort_keys=True).encode("utf-8", "surrogatepass")
        except (TypeError, ValueError, RecursionError):
            return ""
    return hashlib.sha256(head.encode() + b"\n" + body).hexdigest()


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(name): _plain(value) for name, value in item.items()}
    if isinstance(item, list | tuple):
        return [_plain(value) for value in item]
    return item.item() if isinstance(item, np.generic) else item
