"""The tables of a report, typed: annotators, doubtful answers, pairs to ask next, what was compared, where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import Ints
from pdcc.report.content import ReportContent
from pdcc.report.sections import ItemLine, item_line
from pdcc.report.words import interval, missing, number, share, shown

# Rows of each table: the page is to stay small, and nobody reads more.
MOST_ANSWERS, MOST_ANNOTATORS, MOST_SUGGESTED, MOST_COMPARED = 300, 100, 30, 40
# Of doubtful answers and suggested pairs, so many have thumbnails.
WITH_IMAGES = 20


@dataclass(frozen=True)
class AnswerRow:
    """An answer that may be wrong."""

    left: ItemLine
    right: ItemLine
    answer: str
    annotator: str
    expected: str
    wrong: str
    reason: str


@dataclass(frozen=True)
class AnnotatorRow:
    """How far one annotator's answers can be relied on."""

    name: str
    answers: str
    reliability: str
    interval: str
    confuses: str
    flag: str


@dataclass(frozen=True)
class SuggestedRow:
    """A pair to ask about, and why."""

    left: ItemLine
    right: ItemLine
    probability: str
    gain: str
    chosen_by: str


@dataclass(frozen=True)
class ComparedRow:
    """A setting, and how well it predicted answers that it had not seen."""

    setting: str
    nll: str
    behind: str
    error: str


def most_doubtful(content: ReportContent) -> pd.DataFrame | None:
    """The rows of ``doubtful`` that are shown, most doubtful first."""
    table = content.doubtful
    if table is None or not len(table):
        return None
    order = np.argsort(-table["wrong"].to_numpy(dtype=np.float64), kind="stable")
    return table.iloc[order[:MOST_ANSWERS]]


def of_answers(content: ReportContent, images: Mapping[int, str]) -> tuple[AnswerRow, ...]:
    """Answers that may be wrong, the most doubtful first."""
    table = most_doubtful(content)
    if table is None:
        return ()
    who = [""] * len(table) if "annotator" not in table else [_name(a) for a in table["annotator"]]
    return tuple(
        AnswerRow(
            item_line(content, int(i), images), item_line(content, int(j), images), "same" if similar else "different", annotator,
            number(expected, 2), number(wrong, 2), shown(reason, 200),
        )
        for i, j, similar, annotator, expected, wrong, reason in zip(
            table["i"], table["j"], table["similar"], who, table["expected"], table["wrong"], table["reason"], strict=True
        )
    )  # fmt: skip


def of_annotators(content: ReportContent) -> tuple[AnnotatorRow, ...]:
    """Annotators, the least reliable first."""
    if content.annotators is None:
        return ()
    return tuple(
        AnnotatorRow(
            _name(row["annotator"]), f"{int(row['answers']):,}", share(row["reliability"]),
            interval(row["low"], row["high"]), _name(row["confuses"], 160), _name(row["flag"], 160),
        )
        for row in least_reliable(content.annotators, MOST_ANNOTATORS).to_dict(orient="records")
    )  # fmt: skip


def least_reliable(annotators: pd.DataFrame, most: int) -> pd.DataFrame:
    """The ``most`` annotators with the lowest reliability, lowest first."""
    return annotators.sort_values("reliability", kind="stable").iloc[:most]


def of_suggested(content: ReportContent, images: Mapping[int, str]) -> tuple[SuggestedRow, ...]:
    """Pairs to ask about, as they were suggested."""
    if content.suggested is None:
        return ()
    return tuple(
        SuggestedRow(
            item_line(content, int(row["i"]), images), item_line(content, int(row["j"]), images), f"{float(row['probability']):.2g}",
            number(row["gain"]), _name(row["chosen_by"]),
        )
        for row in content.suggested.iloc[:MOST_SUGGESTED].to_dict(orient="records")
    )  # fmt: skip


def pictured(content: ReportContent, cards: list[tuple[int, Ints, Ints]]) -> list[int]:
    """Row numbers of items that want a thumbnail, most wanted first: those of cards, then of answers, then of suggested pairs."""
    rows = [int(n) for _, pure, doubtful in cards for n in (*pure, *doubtful)]
    for table in (most_doubtful(content), content.suggested):
        if table is not None:
            rows += [int(n) for pair in table[["i", "j"]].to_numpy()[:WITH_IMAGES] for n in pair]
    return rows


def of_compared(content: ReportContent) -> tuple[ComparedRow, ...]:
    """What was compared in the fit, in its order."""
    return tuple(
        ComparedRow(
            shown(row.get("setting", ""), 120), number(row.get("nll"), 4), number(row.get("behind_best"), 4),
            number(row.get("standard_error"), 4),
        )
        for row in content.fit.compared[:MOST_COMPARED]
    )  # fmt: skip


def facts_of(content: ReportContent) -> list[tuple[str, list[tuple[str, str]]]]:
    """Versions, seed, parameters and hashes: groups of names and values."""
    facts = content.facts
    made = [("estimator", facts.estimator), ("seed", "not recorded" if facts.seed is None else str(facts.seed))]
    made += [(shown(k), shown(v)) for k, v in facts.versions.items()]
    options = [(shown(k), shown(v, 120)) for k, v in sorted(facts.options.items())]
    hashes = [(shown(k, 120), shown(v, 80)) for k, v in facts.hashes.items()]
    return [("Made with", made), ("Parameters of the fit", options), ("SHA-256 of the data", hashes)]


def _name(value: Any, longest: int = 60) -> str:
    return "" if missing(value) else shown(value, longest)
