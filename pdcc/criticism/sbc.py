"""Simulation-based calibration: does an inference engine recover parameters that came from its own prior?

Draw truth from the prior and data from the truth, infer, and rank the truth among the posterior draws. If the
engine samples the exact posterior, every rank is uniform (Talts et al. 2018) and every central
interval covers as often as it claims.
"""

import json
import logging
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, chi2, kstest

from pdcc.criticism.calibration import wilson
from pdcc.grid.runner import run_grid
from pdcc.select.score import holm

logger = logging.getLogger(__name__)

Simulate = Callable[[np.random.Generator], tuple[Any, Mapping[str, ArrayLike]]]
Engine = Callable[[Any, int], Mapping[str, ArrayLike]]

LEVELS = (0.5, 0.8, 0.9)


@dataclass(frozen=True)
class SBC:
    """Ranks of the truth among posterior draws, from R replicates that finished.

    names: the Q scalar quantities, such as "mu" or "B[0, 1]". ranks: (R, Q), each from 0 to ``draws``.
    covered: (R, Q, 3) bool, whether the central 50, 80 and 90 % intervals hold the truth.
    draws: posterior draws a replicate was ranked among, after thinning. asked: replicates asked for.
    replicates: (R,) their numbers. failures: (replicate, message) of those that did not finish.
    """

    names: tuple[str, ...]
    ranks: NDArray[np.int64]
    covered: NDArray[np.bool_]
    draws: int
    asked: int
    replicates: NDArray[np.int64]
    failures: tuple[tuple[int, str], ...] = ()


def run_sbc(
    simulate: Simulate,
    engine: Engine,
    *,
    replicates: int = 200,
    seed: int = 0,
    path: str | Path | None = None,
    n_jobs: int = 1,
    dask: str | None = None,
    progress: bool = False,
    thin: int = 1,
) -> SBC:
    """Simulate, infer and rank ``replicates`` times.

    simulate(rng) returns (problem, truth): truth maps names to numbers or arrays drawn from the prior, and the
    problem holds data drawn given them. engine(problem, seed) returns the same names with draws on the first
    axis, (draws, ...), with clusters already aligned to the truth. ``thin`` keeps every thin-th draw: correlated
    draws make ranks pile up at both ends even when the engine is right, so thin Markov chains to about
    independent draws.

    Every replicate has seeds of its own, so results do not depend on n_jobs, ``dask`` (the address of a Dask scheduler) or interruptions. With ``path``
    each finished replicate is appended to that JSON-lines file, and a rerun continues where the file stops.
    An engine that raises is recorded as a failure, logged and counted by ``check_sbc``; a rerun tries it again.
    """
    for name, value in (("replicates", replicates), ("thin", thin)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, found {value}. Pass a positive integer.")
    settings = {"seed": seed, "thin": thin}
    done: dict[Hashable, dict[str, Any]] = {} if path is None else _read(Path(path), settings)
    todo = [r for r in range(replicates) if "ranks" not in done.get(r, {})]
    if done:
        logger.info("%s holds %d of %d replicates; continuing", path, replicates - len(todo), replicates)
    done |= run_grid(
        todo, partial(_replicate, simulate, engine, seed, thin), lambda record: record["replicate"],
        None if path is None else Path(path), n_jobs=n_jobs, dask=dask, progress=progress, label="sbc",
        failed=_lost, stamp=lambda record: record | settings, on_record=_say,
    )  # fmt: skip
    return _collect([done[r] for r in range(replicates)], replicates)


def check_sbc(result: SBC, level: float = 0.01) -> pd.DataFrame:
    """Judge each quantity: rank uniformity, coverage, and what the replicates could have detected.

    Columns: quantity, replicates, failures, p_chi2 and p_ecdf (uniformity of ranks, in bins and by Kolmogorov's
    distance), p (Holm-adjusted over quantities and both tests), coverage_50/80/90 with ``_low``/``_high`` Wilson 95 %
    bounds, needed (replicates needed), verdict, sentence.

    The verdict is "uniform", "biased" (adjusted p below ``level``) or "underpowered". Underpowered means that
    90 % intervals that truly cover only 80 % would be missed more than one time in five by a
    binomial test at ``level``: ``needed`` is the number of replicates that would do.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, found {level}. Use 0.01.")
    n, Q = result.ranks.shape
    # Where the truth lies among the draws, on (0, 1); the jitter inside a rank keeps ties from faking structure.
    jitter = np.random.default_rng(0).random((n, Q))
    place = (result.ranks + jitter) / (result.draws + 1)
    counts, expected = rank_histogram(result.ranks, result.draws)
    p_chi2 = [float(chi2.sf(((c - expected) ** 2 / expected).sum(), len(expected) - 1)) for c in counts]
    p_ecdf = [float(kstest(place[:, q], "uniform").pvalue) for q in range(Q)]
    adjusted = [p for p in holm([*p_chi2, *p_ecdf]) if p is not None]
    needed = replicates_needed(level)
    rows = []
    for q, name in enumerate(result.names):
        share = result.covered[:, q].mean(axis=0)
        low, high = wilson(share, n)
        p = min(adjusted[q], adjusted[Q + q])
        verdict, sentence = _judge(name, p, place[:, q], share, n, needed, level)
        if result.failures:
            sentence += f" {len(result.failures)} of {result.asked} replicates failed (first: {result.failures[0][1]}); if hard problems fail more often, the rest look better than they are."
        row = {"quantity": name, "replicates": n, "failures": len(result.failures), "p_chi2": p_chi2[q]}
        row |= {"p_ecdf": p_ecdf[q], "p": p}
        for k, central in enumerate(LEVELS):
            title = f"coverage_{central * 100:.0f}"
            row |= {title: float(share[k]), f"{title}_low": float(low[k]), f"{title}_high": float(high[k])}
        rows.append(row | {"needed": needed, "verdict": verdict, "sentence": sentence})
    return pd.DataFrame(rows)


def replicates_needed(level: float = 0.01, *, true: float = 0.8, claimed: float = 0.9, power: float = 0.8) -> int:
    """Replicates for a two-sided binomial test at ``level`` to see that intervals cover ``true``, not ``claimed``."""
    for n in range(10, 100_000, 5):
        low = binom.ppf(level / 2, n, claimed) - 1
        if binom.cdf(low, n, true) >= power:
            return n
    raise ValueError(
        f"true, claimed: expected coverages further apart, found {true} and {claimed}. Ask for a larger gap."
    )


def _say(record: dict[str, Any]) -> None:
    if "error" in record:
        logger.warning("sbc replicate %d failed: %s", record["replicate"], record["error"])


def _lost(r: int, error: Exception) -> dict[str, Any]:
    """A replicate whose workers died; what ``_replicate`` raises itself is a mistake in the call, and ends the run."""
    if isinstance(error, ValueError):
        raise error
    return {"replicate": r, "error": f"{type(error).__name__}: {error}"}


def _replicate(simulate: Simulate, engine: Engine, seed: int, thin: int, r: int) -> dict[str, Any]:
    """One replicate as a JSON-ready record: ranks and coverage by name, or the error."""
    for_data, for_engine, for_ties = np.random.SeedSequence([seed, r]).spawn(3)
    problem, truth = simulate(np.random.default_rng(for_data))
    try:
        posterior = engine(problem, int(for_engine.generate_state(1)[0]))
    except Exception as error:  # an engine may fail in any way; the failure is the finding
        return {"replicate": r, "error": f"{type(error).__name__}: {error}"}
    missing = [name for name in truth if name not in posterior]
    if missing:
        raise ValueError(
            f"engine: expected draws of {', '.join(truth)}, found none of {', '.join(missing)}. Return every name that simulate does."
        )
    rng = np.random.default_rng(for_ties)
    ranks: dict[str, int] = {}
    covered: dict[str, list[bool]] = {}
    draws = 0
    for name, value in truth.items():
        true, drawn = np.asarray(value, dtype=np.float64), np.asarray(posterior[name], dtype=np.float64)[::thin]
        if drawn.shape[1:] != true.shape or len(drawn) < 2:
            raise ValueError(
                f"engine: expected at least 2 draws of {name} after thinning, each of shape {true.shape}, found an array of shape {drawn.shape}. Put draws on the first axis."
            )
        if not (np.isfinite(drawn).all() and np.isfinite(true).all()):
            return {"replicate": r, "error": f"{name} has draws that are not finite"}
        if draws and len(drawn) != draws:
            raise ValueError(
                f"engine: expected {draws} draws of every name, found {len(drawn)} of {name}. Return arrays of one length."
            )
        draws = len(drawn)
        below, ties = (drawn < true).sum(axis=0), (drawn == true).sum(axis=0)
        # Ties are broken at random: a truth equal to t draws is equally likely to rank anywhere among them.
        rank = below + np.floor(rng.random(true.shape) * (ties + 1)).astype(np.int64)
        ends = np.quantile(drawn, [side for c in LEVELS for side in (0.5 - c / 2, 0.5 + c / 2)], axis=0)
        inside = (ends[::2] <= true) & (true <= ends[1::2])
        for index in np.ndindex(true.shape):
            title = name if not index else f"{name}[{', '.join(map(str, index))}]"
            ranks[title] = int(np.asarray(rank)[index])
            covered[title] = [bool(c[index]) for c in inside]
    return {"replicate": r, "draws": draws, "ranks": ranks, "covered": covered}


def _read(path: Path, settings: dict[str, int]) -> dict[Hashable, dict[str, Any]]:
    records: dict[Hashable, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else []):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            logger.warning("%s: line %d is not whole and will be run again", path, number + 1)
            continue
        found = {name: record.get(name) for name in settings}
        if found != settings:
            raise ValueError(
                f"path: expected results of {settings} in {path}, found {found} (line {number + 1}). Choose another file, or delete this one."
            )
        records[record["replicate"]] = record
    return records


def _collect(records: list[dict[str, Any]], asked: int) -> SBC:
    good = [record for record in records if "ranks" in record]
    failures = tuple((int(r["replicate"]), str(r["error"])) for r in records if "error" in r)
    if not good:
        raise ValueError(
            f"engine: expected at least one replicate to finish, found {len(failures)} failures (first: {failures[0][1]}). Mend the engine."
        )
    names, draws = tuple(good[0]["ranks"]), int(good[0]["draws"])
    odd = [record["replicate"] for record in good if tuple(record["ranks"]) != names or record["draws"] != draws]
    if odd:
        raise ValueError(
            f"engine: expected the same quantities and number of draws ({draws}) from every replicate, found others in replicate {odd[0]}. Return arrays of fixed shape."
        )
    return SBC(
        names=names,
        ranks=np.array([[record["ranks"][name] for name in names] for record in good], dtype=np.int64),
        covered=np.array([[record["covered"][name] for name in names] for record in good], dtype=bool),
        draws=draws,
        asked=asked,
        replicates=np.array([record["replicate"] for record in good], dtype=np.int64),
        failures=failures,
    )


def rank_histogram(ranks: NDArray[np.int64], draws: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts (Q, bins) of ranks 0..draws, and the expected counts (bins,), which differ where bins do not divide them."""
    # At least 10 expected per bin keep the chi-square approximation good; more than 20 bins only blur.
    bins = int(np.clip(len(ranks) // 10, 2, min(20, draws + 1)))
    of_rank = np.arange(draws + 1) * bins // (draws + 1)
    expected = np.bincount(of_rank, minlength=bins) * len(ranks) / (draws + 1)
    return np.array([np.bincount(of_rank[column], minlength=bins) for column in ranks.T]), expected


def _judge(
    name: str,
    p: float,
    place: NDArray[np.float64],
    share: NDArray[np.float64],
    n: int,
    needed: int,
    level: float,
) -> tuple[str, str]:
    if p < level:
        # A uniform place has mean 1/2 with standard error sqrt(1 / 12 n), and variance 1/12.
        z = (place.mean() - 0.5) * math.sqrt(12 * n)
        if abs(z) > 3:
            how = "too low" if z > 0 else "too high"
            shape = f"the posterior of {name} sits {how}"
        else:
            shape = f"the posterior of {name} is too {'narrow' if place.var() > 1 / 12 else 'wide'}"
        return "biased", f"Ranks are not uniform: {shape} (90 % intervals cover {share[-1]:.0%})."
    if n < needed:
        return (
            "underpowered",
            f"Ranks of {name} look uniform, but {n} replicates would often miss 90 % intervals that cover 80 %; run {needed}.",
        )
    return "uniform", f"Ranks of {name} are uniform within chance; 90 % intervals cover {share[-1]:.0%}."
