"""Ask a machine about pairs: what it said before is not asked again, and a budget is not exceeded."""

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from tqdm.auto import tqdm

from pdcc.arrays import Ints
from pdcc.data.names import check_ids, look_up
from pdcc.data.reading import ReadAnswers
from pdcc.data.words import text_of
from pdcc.errors import OracleError, PairDataError, TemporaryOracleError, printable
from pdcc.oracles.cache import Cache, question
from pdcc.oracles.families import annotator_id
from pdcc.oracles.protocol import Answered, Oracle, check_oracle, check_reply
from pdcc.storage.lock import claimed_file
from pdcc.validation import check_count, check_number, check_pairs, show_progress

logger = logging.getLogger(__name__)

# Sums of costs that differ by rounding alone are one sum.
ROUNDING = 1e-9
# No wait is longer, in seconds, unless the oracle asks for it.
LONGEST_WAIT = 120.0
UNSURE = "unsure"


@dataclass(frozen=True, eq=False)
class MachineAnswers(ReadAnswers):
    """What a machine answered; ``fit`` takes it in the place of pairs and answers, as it takes what ``read_answers`` returns.

    table: every answer as a row i, j, similar (1, 0, a probability or "unsure"), annotator, cost and, if given, family: the table that
    ``pdcc fit`` reads. unasked: pairs that the budget left out (i, j). cost: of all answers here; paid: what this call added to it.
    """

    table: pd.DataFrame
    unasked: pd.DataFrame
    cost: float
    paid: float


def ask(
    oracle: Oracle,
    pairs: ArrayLike | pd.DataFrame,
    items: Any,
    *,
    cache: str | Path,
    item_ids: Collection[Any] | None = None,
    budget: float | None = None,
    batch: int = 20,
    retries: int = 5,
    wait: float = 1.0,
    sleep: Callable[[float], object] = time.sleep,
    annotator: str | None = None,
    family: str | None = None,
    progress: bool | None = None,
) -> MachineAnswers:
    """Ask ``oracle`` about pairs; call it again, after a kill too, and it asks only what is missing.

    Args:
        pairs: (M, 2) row numbers, or ids where item_ids (N,) are given; or a table with the columns i and j, as ``suggest_pairs``
            returns. Either way round is one pair, and is asked once.
        items: (N, ...), what the oracle is shown of each item: a list of texts, an array, or a table (rows are then dicts).
        cache: a SQLite file of answers by oracle, version, pair and what is shown of it; on disk before the next batch is asked. One process
            asks by a cache at a time: another gets ``BusyError``.
        budget: the most that the answers to these pairs may cost, what was paid for them earlier included; needs ``oracle.price``.
        batch: how many pairs the oracle gets at once; as many answers may be lost, and paid for again, if the process is killed.
        retries: how often a batch is tried again after ``TemporaryOracleError``; the waits double from ``wait`` seconds on.
        annotator: who answers (default: the oracle's name); with a family, the id is "family:annotator".
    """
    name, version, price = check_oracle(oracle)
    who = annotator_id(name if annotator is None else annotator, family)
    check_count("batch", batch)
    check_count("retries", retries, 0)
    check_number("wait", wait, 0.0)
    if budget is not None:
        check_number("budget", budget, 0.0)
        if price is None:
            raise OracleError(
                "budget", "an oracle with a price, the most that one answer can cost", "none", "Set oracle.price."
            )
    shown = items.to_dict("records") if isinstance(items, pd.DataFrame) else items
    if issparse(shown) or not hasattr(shown, "__getitem__") or not hasattr(shown, "__len__"):
        what = f"a {type(shown).__name__}"
        raise PairDataError("items", "a list, an array or a table with a row for each item", what, "Pass one of these.")
    rows, ids = _rows(pairs, shown, item_ids)
    names = [str(row) for row in range(len(shown))] if ids is None else [text_of(i) for i in ids]
    check_ids("item_ids, as text", names)
    questions = [question((names[i], names[j]), (shown[i], shown[j])) for i, j in rows.tolist()]
    wanted = {q: k for k, q in reversed(list(enumerate(questions))) if rows[k, 0] != rows[k, 1]}
    order = sorted(wanted.values())
    path = Path(cache)
    with claimed_file(path), Cache(path) as kept:
        known = {q: said for q, said in kept.of(name, version).items() if q in wanted}
        earlier, n_known = math.fsum(said.cost for said in known.values()), len(known)
        missing = [k for k in order if questions[k] not in known]
        label = f"asking {printable(name)}"
        with tqdm(total=len(missing), desc=label, disable=not show_progress(progress), leave=False) as bar:
            while missing:
                n = batch if budget is None else _affordable(budget, known.values(), price or 0.0, batch)
                if n == 0:
                    break
                now, missing = missing[:n], missing[n:]
                asked = [(int(rows[k, 0]), int(rows[k, 1])) for k in now]
                reply = _tried(oracle, name, asked, shown, retries, wait, sleep, path)
                said = list(zip((questions[k] for k in now), check_reply(reply, len(now), name, price), strict=True))
                kept.keep(name, version, said)
                known |= dict(said)
                bar.update(len(now))
    paid = math.fsum(said.cost for said in known.values()) - earlier
    notes = [f"{len(known) - n_known:,} pairs were asked of {name} {version}, for {paid:g}; {n_known:,} were known."]
    if len(order) < len(rows):
        notes.append(f"{len(rows) - len(order):,} pairs were the same as others, or of an item with itself: left out.")
    if missing:
        notes.append(f"{len(missing):,} pairs were left unasked: their answers could exceed the budget of {budget:g}.")
    if budget is not None and earlier + paid > budget + ROUNDING:
        notes.append(f"The answers cost {earlier + paid:g}, more than the budget: the price of {name} is too low.")
    answered = [(k, known[questions[k]]) for k in order if questions[k] in known]
    return _result(rows, ids, answered, missing, who, family, earlier + paid, paid, notes)


def _rows(pairs: ArrayLike | pd.DataFrame, items: Sequence[Any], item_ids: Collection[Any] | None) -> tuple[Ints, Any]:
    """Row numbers (M, 2), and the items' ids (N,) where there are any."""
    if isinstance(pairs, pd.DataFrame):
        if missing := [end for end in ("i", "j") if end not in pairs.columns]:
            found = ", ".join(map(str, pairs.columns[:8])) or "none"
            raise PairDataError(
                "pairs", "a table with the columns i and j", f"the columns {found}", f"Add {missing[0]}."
            )
        pairs = pairs[["i", "j"]].to_numpy(dtype=None if item_ids is None else object)
    if item_ids is None:
        return check_pairs(pairs, len(items)), None
    ids = check_ids("item_ids", item_ids, len(items))
    return look_up(pairs, ids, "item_ids"), ids


def _affordable(budget: float, known: Collection[Answered], price: float, batch: int) -> int:
    """How many of the next answers cannot exceed the budget, whatever they cost up to the price."""
    left = budget - math.fsum(said.cost for said in known)
    if left < -ROUNDING:
        return 0
    return batch if price == 0 else min(batch, int((left + ROUNDING) / price))


def _tried(
    oracle: Oracle, name: str, pairs: list[tuple[int, int]], items: Sequence[Any],
    retries: int, wait: float, sleep: Callable[[float], object], path: Path,
) -> Any:  # fmt: skip
    """The oracle's reply, asked again while it says that this may help."""
    go_on = f"What it answered before is in {path}: the same call goes on from there."
    failed = 0
    while True:
        try:
            return oracle.answer(pairs, items)
        except TemporaryOracleError as error:
            pause = max(min(wait * 2**failed, LONGEST_WAIT), error.after)
            failed += 1
            if failed > retries:
                what = f"{failed} temporary errors in a row ({error})"
                raise OracleError(f"oracle {name!r}", "answers", what, go_on) from error
            logger.info("%s: %s; asked again in %g s", name, error, pause)
            sleep(pause)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise OracleError(f"oracle {name!r}", "answers", what, f"Mend it. {go_on}") from error


def _result(
    rows: Ints, ids: Any, answered: list[tuple[int, Answered]], missing: list[int],
    who: str, family: str | None, cost: float, paid: float, notes: list[str],
) -> MachineAnswers:  # fmt: skip
    def ends(numbers: Sequence[int]) -> pd.DataFrame:
        at = rows[np.array(numbers, dtype=np.int64)]
        return pd.DataFrame({end: at[:, k] if ids is None else ids[at[:, k]] for k, end in enumerate("ij")})

    degrees = [said.degree for _, said in answered]
    without = np.array([degree is None for degree in degrees], dtype=bool)
    soft = any(degree not in (None, 0.0, 1.0) for degree in degrees)
    found = ends([k for k, _ in answered]).assign(annotator=who)
    degree = pd.Series(degrees, dtype=np.float64)
    frame = found[~without].assign(similar=degree[~without] if soft else degree[~without] == 1)
    aside = found[without].assign(row=np.flatnonzero(without), similar=UNSURE)
    cells: list[Any] = [UNSURE if d is None else int(d) if d in (0.0, 1.0) else d for d in degrees]
    table = found.assign(similar=pd.Series(cells, dtype=object), cost=[said.cost for _, said in answered])
    columns = ["i", "j", "similar", "annotator", "cost"]
    if family is not None:
        table, columns = table.assign(family=family), [*columns, "family"]
    if without.any():
        notes = [*notes, f"{int(without.sum()):,} answers are '{UNSURE}': kept out of the likelihood."]
    return MachineAnswers(
        frame=frame[["i", "j", "similar", "annotator"]].reset_index(drop=True),
        unsure=aside[["row", "i", "j", "similar", "annotator"]].reset_index(drop=True),
        unreadable=pd.DataFrame({"row": [], "found": []}),
        notes=tuple(notes),
        format="oracle",
        soft=soft,
        n_rows=len(answered),
        rows=np.flatnonzero(~without),
        ignored=(),
        table=table[columns],
        unasked=ends(missing),
        cost=cost,
        paid=paid,
    )  # fmt: skip
