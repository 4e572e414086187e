"""A SQLite file of ours: known by its header, kept by a write-ahead log, on disk when a statement returns; any other file is refused and left as it is."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pdcc.errors import ArtifactError


class Database:
    """One SQLite file, for one process and any of its threads.

    A subclass names what it keeps: application and version are kept in the file's header (whose file it is, and the version of its
    tables); holds: what people call its content; option: how they choose another file.
    """

    application: ClassVar[int]
    version: ClassVar[int]
    tables: ClassVar[tuple[str, ...]]
    holds: ClassVar[str]
    option: ClassVar[str]

    def __init__(self, path: Path, *, create: bool = True):
        self.path = path
        self._lock = threading.Lock()
        if not create and not path.is_file():
            raise ArtifactError(
                f"{path}: expected a file of {self.holds}, found none. Check the path, or answer some first."
            )
        if path.exists() and not path.is_file():
            raise ArtifactError(f"{path}: expected a file for {self.holds}, found something else. {self._another}")
        with self._reported():
            # Autocommit: each statement is a transaction, on disk when it returns.
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=20)
            try:
                self._check_or_make()
                self._opened()
            except BaseException:
                self._base.close()
                raise

    @property
    def _another(self) -> str:
        return f"Choose another {self.option}."

    def _opened(self) -> None:
        """What a subclass reads once the file is known to be its own."""

    def _check_or_make(self) -> None:
        application, version = (self._one(f"PRAGMA {name}") for name in ("application_id", "user_version"))
        empty = self._one("SELECT count(*) FROM sqlite_master") == 0
        if not (empty and application == 0 and version == 0):
            if application != self.application:
                raise ArtifactError(
                    f"{self.path}: expected a file of {self.holds} that pdcc wrote, found a database of another program. {self._another}"
                )
            if version != self.version:
                raise ArtifactError(
                    f"{self.path}: expected {self.holds} of version {self.version}, found version {version}. Open it with the pdcc that wrote it."
                )
            if (found := self._one("PRAGMA quick_check(1)")) != "ok":
                raise sqlite3.DatabaseError(found)
        if self._one("PRAGMA journal_mode = WAL") != "wal":
            raise ArtifactError(
                f"{self.path}: expected a place where SQLite can keep a write-ahead log, found none. Choose a local disk with {self.option}."
            )
        self._base.execute("PRAGMA synchronous = FULL")
        if empty:
            header = (f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}")
            self._base.execute("BEGIN IMMEDIATE")
            for statement in (*self.tables, *header):
                self._base.execute(statement)
            self._base.execute("COMMIT")

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Say of a file that SQLite cannot read what a person can do."""
        try:
            yield
        except sqlite3.Error as error:
            raise ArtifactError(
                f"{self.path}: expected a readable file of {self.holds}, found one that is not ({error}). Restore it, or choose another {self.option}."
            ) from error

    def _one(self, query: str, *values: object) -> object:
        row = self._base.execute(query, values).fetchone()
        return None if row is None else row[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was kept is kept."""
        with self._lock:
            self._base.close()
