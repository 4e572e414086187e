"""Every exception pdcc raises on purpose. Each message says what was expected, what was found, and what to do."""

from typing import Any


class PairDataError(ValueError):
    """Bad input, said so that a person can act: argument, expectation, what was found, first bad row, fix.

    Examples:
        >>> from pdcc import PairAnswers, PairDataError
        >>> try:
        ...     PairAnswers.from_arrays(3, [[0, 1], [1, 7]], [1, 0])
        ... except PairDataError as error:
        ...     print(error.argument, error.row)
        pairs 1
    """

    def __init__(self, argument: str, expected: str, found: str, fix: str, row: int | None = None):
        self._parts = (argument, expected, found, fix, row)
        where = "" if row is None else f" (first at row {row}, counted from 0)"
        super().__init__(f"{argument}: expected {expected}, found {found}{where}. {fix}")
        self.argument, self.row = argument, row

    def at(self, row: int) -> "PairDataError":
        """The same error with its row numbered as the user has it."""
        return type(self)(*self._parts[:4], row)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts  # so that it survives the trip from a worker process


class UnsafeFileError(PairDataError):
    """A pickle file asks for more than plain data; nothing it names was run."""


class ArtifactError(ValueError):
    """A file that pdcc wrote, or was told it wrote, cannot be used; the message says why and what to do.

    Examples:
        >>> import tempfile
        >>> from pdcc import ArtifactError, VolMaxDCC
        >>> try:
        ...     VolMaxDCC.load(tempfile.mkdtemp())
        ... except ArtifactError:
        ...     print("not a run")
        not a run
    """


class BusyError(ArtifactError):
    """Another process is writing to this directory."""


class OracleError(PairDataError):
    """A machine that answers pairs cannot be used, or replied what is no answer."""


class TemporaryOracleError(RuntimeError):
    """Raised by an oracle where asking again later may help. after: seconds to wait at least, as a service may say."""

    def __init__(self, message: str = "", after: float = 0.0):
        super().__init__(message)
        self.after = float(after)


class LostProcessError(RuntimeError):
    """Of several processes that train one model, another one ended or no longer answers: this one cannot go on either."""


class FirstProcessError(LostProcessError):
    """The first of several processes raised an error, which it tells by itself."""


class InfeasibleError(ValueError):
    """The answers cannot all be kept, or greedy assignment found no way to: which one is first in the way, and the fix."""


class CertificateError(RuntimeError):
    """A certificate that does not prove what the result claims."""


def printable(text: str) -> str:
    """Text from users as a terminal may show it: what would steer the terminal is spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def expect(holds: bool, argument: str, expected: str, found: Any, fix: str) -> None:
    """Raise a ``ValueError`` about ``argument`` unless the condition holds."""
    if not holds:
        raise ValueError(f"{argument}: expected {expected}, found {found}. {fix}")


# How text begins that a spreadsheet takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(value: Any) -> Any:
    """A cell of a table as a spreadsheet may open it: ' before text that it would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
