"""The command line: pdcc demo, fit, predict, diagnose, suggest, audit, annotators, ask, label, report, simulate, bench, doctor. A command lives in a module that is imported here."""

import contextlib
import errno
import logging
import sys
from collections.abc import Sequence
from typing import Any

import typer

from pdcc.cli import fit, diagnose, asking, machines, studies, doctor  # isort: skip  (the order of --help)
from pdcc.cli.app import app, complain, say
from pdcc.cli.processes import joined, n_processes, rank, speaks
from pdcc.errors import FirstProcessError, LostProcessError
from pdcc.label.command import label
from pdcc.report.command import report

__all__ = ["app", "asking", "diagnose", "doctor", "fit", "machines", "main", "say", "studies"]

app.command()(label)
app.command()(report)

# The machine is out of space, not the input wrong.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# typer brings its own copy of click from 0.29 on; its UsageError is reached by inheritance in every version.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: one sentence on stderr for an error, no traceback unless --debug."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = next((a for a in arguments if not a.startswith("-")), "")
    try:
        with joined(command):
            code = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERROR as error:
        if speaks():
            error.show()
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (ValueError, TypeError, OSError) as error:
        if "--debug" in arguments:
            raise
        full = isinstance(error, OSError) and error.errno in NO_ROOM
        cure = ". Nothing that was there is lost: make room, then go on with the same command." if full else ""
        complain(f"pdcc: {error}{cure}", error)
        code = 3 if full else 2
    except FirstProcessError:
        code = 2
    except LostProcessError as error:
        if "--debug" in arguments:
            raise
        cure = "Go on with the same command and --resume, with any number of processes."
        complain(f"pdcc: process {rank() + 1} of {n_processes()}: {error} {cure}", error)
        code = 4
    finally:
        log = logging.getLogger("pdcc")
        log.handlers.clear()
        log.setLevel(logging.NOTSET)  # as it was: others in this process may listen
    if code == 130:
        go_on = (
            "Go on with the same command and --resume."
            if command == "fit"
            else "The same command goes on where it was, or begins anew."
        )
        say(f"Interrupted. {go_on}", err=True)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code if isinstance(code, int) else 0)
