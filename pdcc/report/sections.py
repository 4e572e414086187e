"""The sections of a report, typed: the verdict, the clusters and their items. What is long is cut here, and says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcc.arrays import Float64, Ints
from pdcc.errors import printable
from pdcc.identifiability.diagnose import Diagnosis
from pdcc.identifiability.verdict import Overall, Question
from pdcc.report.content import ReportContent
from pdcc.report.words import NONE, estimate, interval, missing, number, sentence, share, shown

# Of each kind, in a card.
N_SHOWN = 4
# Beyond so many clusters, cards are made for the least settled ones.
MOST_CARDS = 30
LONGEST_TEXT = 140
TITLES = {
    Question.LABELS: "Labels", Question.ITEMS: "Items", Question.CLUSTERS: "Clusters", Question.MEMBERSHIPS: "Soft memberships",
    Question.MODEL: "Model",
}  # fmt: skip
# A word and a sign, so that colour is never the only difference.
SIGNS = {Overall.SUPPORTED: "✓", Overall.NOT_SUPPORTED: "✗", Overall.CANNOT_TELL: "?"}


@dataclass(frozen=True)
class VerdictRow:
    """A question, the word that answers it, and the sentence."""

    question: str
    verdict: str
    sign: str
    kind: str
    answer: str


@dataclass(frozen=True)
class ConditionRow:
    """What a theorem asks for."""

    title: str
    verdict: str
    probability: str
    theorem: str


@dataclass(frozen=True)
class Verdict:
    """What can be trusted, in plain words."""

    lead: str
    detail: tuple[str, ...]
    rows: tuple[VerdictRow, ...]
    conditions: tuple[ConditionRow, ...]
    advice: tuple[str, ...]


@dataclass(frozen=True)
class ItemLine:
    """One item, as a list or a table shows it."""

    name: str
    sure: str
    text: str
    image: str | None


@dataclass(frozen=True)
class ClusterCard:
    """One cluster: how large, how pure, what it is confounded with, and items to look at."""

    number: int
    size: int
    purity: str
    interval: str
    settled: str
    confounded: str
    answers: str
    purest: tuple[ItemLine, ...]
    doubtful: tuple[ItemLine, ...]


def of_verdict(content: ReportContent) -> Verdict | None:
    """The diagnosis in sentences; None where there is none."""
    found = content.diagnosis
    if found is None:
        return None
    rows = tuple(
        VerdictRow(
            TITLES[q], str(found.verdicts[q]), SIGNS[found.verdicts[q]], found.verdicts[q].name.lower().replace("_", "-"),
            sentence(found.answer(q)),
        )
        for q in Question
    )  # fmt: skip
    conditions = tuple(
        ConditionRow(c.title, str(c.verdict), NONE if c.probability is None else _range(c.probability), c.theorem)
        for c in found.conditions
    )
    return Verdict(_lead(found), _detail(found), rows, conditions, tuple(printable(a) for a in found.advice))


def _lead(found: Diagnosis) -> str:
    if found.accuracy:
        by = "judged by the trusted labels" if found.trusted else "as far as answers can tell"
        return f"About {share(found.accuracy.estimate)} of the labels are right, {by}: between {interval(found.accuracy.low, found.accuracy.high, ' and ')}, with a confidence of 90 %."
    if found.agreement:
        return f"About {share(found.agreement.estimate)} of the labels are those that the annotators themselves would give ({interval(found.agreement.low, found.agreement.high)}). Whether these are right, the answers cannot show."
    return "No claim is made about how many labels are right."


def _detail(found: Diagnosis) -> tuple[str, ...]:
    reason = [words for words in (found.accuracy_reason, found.doubt) if words is not None]
    pairs = f"Of the pairs in one cluster, {estimate(found.precision)} belong together; of those that belong together, {estimate(found.recall)} are in one cluster."
    quick = "This was a quick look: fewer fits, wider intervals." if found.settings.quick else None
    part = [] if found.sample is None else [f"This looked at {found.sample}, and is on the cautious side."]
    return (*reason, *([pairs] if found.precision else []), *([quick] if quick else []), *part)


def beliefs(content: ReportContent) -> Float64:
    """How sure each item's label is, (N,): its probability where the diagnosis has one, else its membership."""
    found = content.diagnosis
    if found is not None and believed(found) and found.sample is None:
        return found.items["probability"].to_numpy(dtype=np.float64)
    return np.asarray(content.memberships.max(axis=1))


def believed(found: Diagnosis | None) -> bool:
    """Whether a diagnosis could tell items apart: where answers say nothing, all of them are even."""
    return found is not None and bool(found.precision)


def chosen_rows(content: ReportContent) -> list[tuple[int, Ints, Ints]]:
    """For every card: the cluster, its purest items and its most doubtful ones, by row number."""
    sure = beliefs(content)
    numbers = list(range(content.n_clusters))
    if len(numbers) > MOST_CARDS:
        mean = [sure[content.labels == k].mean() if (content.labels == k).any() else 1.0 for k in numbers]
        numbers = sorted(np.argsort(mean, kind="stable")[:MOST_CARDS].tolist())
    found = []
    for k in numbers:
        mine = np.flatnonzero(content.labels == k)
        order = mine[np.argsort(-sure[mine], kind="stable")]
        found.append((k, order[:N_SHOWN], order[N_SHOWN:][::-1][:N_SHOWN]))
    return found


def of_clusters(content: ReportContent, images: Mapping[int, str]) -> tuple[ClusterCard, ...]:
    """Cards; images: thumbnails by row number."""
    sure = beliefs(content)
    table = None if content.diagnosis is None else content.diagnosis.clusters.set_index("cluster")
    size = np.bincount(content.labels, minlength=content.n_clusters)
    cards = []
    for k, pure, doubtful in chosen_rows(content):
        row: Mapping[Any, Any] = {} if table is None else table.loc[k].to_dict()
        known = believed(content.diagnosis) and not missing(row.get("purity"))
        with_ = row.get("confounded_with")
        confounded = NONE
        if known and not missing(with_) and float(row["confounded_share"]) >= 0.005:
            confounded = f"cluster {int(float(str(with_)))} ({share(row['confounded_share'])})"
        cards.append(
            ClusterCard(
                number=k, size=int(size[k]), purity=share(row.get("purity")) if known else NONE,
                interval=interval(row.get("purity_low"), row.get("purity_high")) if known else NONE,
                settled="empty" if not size[k] else NONE if not known else "settled" if row["settled"] else "not settled",
                confounded=confounded, answers=f"{int(row['answers']):,}" if row else NONE,
                purest=tuple(item_line(content, n, images, sure) for n in pure),
                doubtful=tuple(item_line(content, n, images, sure) for n in doubtful),
            )
        )  # fmt: skip
    return tuple(cards)


def item_line(content: ReportContent, row: int, images: Mapping[int, str], sure: Float64 | None = None) -> ItemLine:
    """An item by its name, with text and thumbnail where given."""
    text = content.looks.texts.get(int(row), "")
    return ItemLine(
        name=shown(content.names[row], 60), sure="" if sure is None else share(sure[row]), text=shown(text, LONGEST_TEXT),
        image=images.get(int(row)),
    )  # fmt: skip


def unsettled(content: ReportContent) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Which items are not settled, (N,); None where no diagnosis says."""
    found = content.diagnosis
    return (
        None
        if found is None or not believed(found) or found.sample is not None
        else ~found.items["settled"].to_numpy(dtype=bool)
    )


def _range(pair: Sequence[float]) -> str:
    low, high = pair
    return number(low, 2) if abs(high - low) < 0.005 else f"{number(low, 2)} to {number(high, 2)}"
