"""Answers in SQLite: on disk before anyone is told so, withdrawn where someone changed their mind, never deleted."""

import sqlite3
from collections import Counter
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime

from pdcc.storage.database import Database

ANSWERS = ("same", "different", "unsure")
# SQLite keeps both in the file's header: whose file it is ("pdcc"), and the version of its tables.
APPLICATION, VERSION = 0x70646363, 1
TABLES = (
    """CREATE TABLE answers (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        i TEXT NOT NULL,
        j TEXT NOT NULL,
        answer TEXT NOT NULL CHECK (answer IN ('same', 'different', 'unsure')),
        annotator TEXT NOT NULL,
        chosen_by TEXT NOT NULL,
        probability REAL,
        time TEXT NOT NULL,
        withdrawn TEXT
    )""",
    "CREATE INDEX latest ON answers (annotator, withdrawn, number)",
)


class KeyUsed(ValueError):
    """The key of this answer belongs to another answer."""


@dataclass(frozen=True)
class Answer:
    """One answer about the items with the ids i and j.

    key: made by who sends it, so that sending it again keeps it once. chosen_by: "random" or "suggested".
    probability: the chance with which the pair was chosen, or None where it is not known.
    """

    key: str
    i: str
    j: str
    answer: str
    annotator: str
    chosen_by: str
    probability: float | None


COLUMNS = ", ".join(f.name for f in fields(Answer))


class Store(Database):
    """The answers in one SQLite file, for one process and any of its threads."""

    application, version, tables = APPLICATION, VERSION, TABLES
    holds, option = "answers", "--store"

    def _opened(self) -> None:
        query = "SELECT annotator, count(*) FROM answers WHERE withdrawn IS NULL GROUP BY annotator"
        self._counts: Counter[str] = Counter(dict(self._base.execute(query).fetchall()))

    def add(self, answer: Answer) -> None:
        """Keep an answer: it is on disk when this returns. Raises ``KeyUsed`` where its key is not new."""
        with self._lock:
            try:
                self._base.execute(
                    f"INSERT INTO answers ({COLUMNS}, time) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*astuple(answer), _now())
                )
            except sqlite3.IntegrityError as error:
                raise KeyUsed(f"key: expected a new one, found {answer.key!r} again. Make another.") from error
            self._counts[answer.annotator] += 1

    def find(self, key: str) -> Answer | None:
        """The answer with this key, withdrawn or not."""
        with self._lock:
            row = self._base.execute(f"SELECT {COLUMNS} FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else Answer(*row)

    def withdraw(self, key: str) -> bool:
        """Mark the answer with this key as withdrawn, on disk when this returns. False: it was before, or there is none."""
        with self._lock:
            annotator = self._one("SELECT annotator FROM answers WHERE key = ? AND withdrawn IS NULL", key)
            if annotator is None:
                return False
            self._base.execute("UPDATE answers SET withdrawn = ? WHERE key = ?", (_now(), key))
            self._counts[str(annotator)] -= 1
            return True

    def latest(self, annotator: str) -> str | None:
        """The key of the annotator's last answer that is not withdrawn."""
        query = "SELECT key FROM answers WHERE annotator = ? AND withdrawn IS NULL ORDER BY number DESC LIMIT 1"
        with self._lock:
            found = self._one(query, annotator)
        return None if found is None else str(found)

    def count(self, annotator: str | None = None) -> int:
        """How many answers are kept and not withdrawn: by one annotator, or in all."""
        with self._lock:
            return self._counts.total() if annotator is None else self._counts[annotator]

    def kept(self) -> list[Answer]:
        """All answers that are not withdrawn, in the order in which they came."""
        with self._lock, self._reported():
            rows = self._base.execute(
                f"SELECT {COLUMNS} FROM answers WHERE withdrawn IS NULL ORDER BY number"
            ).fetchall()
        return [Answer(*row) for row in rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
