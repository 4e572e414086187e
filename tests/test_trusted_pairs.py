"""Trusted answers about pairs: bounds that hold whatever is wrong with the other answers, and with the beliefs."""

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import PairDataError, VolMaxDCC, metrics
from pdcc.accuracy.trusted_pairs import (
    TrustedPairs,
    check_drawn,
    draw_trusted,
    most_split,
    read_trusted_pairs,
    with_trusted_pairs,
)
from pdcc.identifiability.given import read_given, with_items

N, K, DRAWS = 1000, 5, 150


def made(kind, rng):
    """(classes, labels, beliefs), uneven classes; beliefs say how likely each label is right, or mislead."""
    y = rng.choice(K, size=N, p=np.geomspace(1, 4, K) / np.geomspace(1, 4, K).sum())
    p = np.clip(rng.beta(8, 1, size=N), 0.01, 0.99)
    labels = np.where(rng.random(N) < p, y, (y + 1) % K)
    if kind == "one class in two clusters":
        labels = np.where((y == K - 1) & (rng.random(N) < 0.5), 0, labels)
    if kind == "two classes in one cluster":
        labels = np.where(labels == 1, 0, labels)
    q = 1 - p if kind == "misleading" else p
    beliefs = np.repeat(((1 - q) / (K - 1))[:, None], K, axis=1)
    beliefs[np.arange(N), labels] = q
    return y, labels, beliefs


def truth(y, labels):
    """Accuracy, purity, and precision and recall of pairs."""
    counts = np.zeros((K, K))
    np.add.at(counts, (labels, y), 1)
    same = (counts * (counts - 1)).sum()
    within, alike = ((n * (n - 1)).sum() for n in (counts.sum(axis=1), counts.sum(axis=0)))
    return metrics.acc(y, labels), counts.max(axis=1).sum() / N, same / within, same / alike


@pytest.mark.parametrize("kind", ["honest", "misleading", "one class in two clusters", "two classes in one cluster"])
@pytest.mark.parametrize("uniform", [False, True])
def test_intervals_hold_their_level(kind, uniform):
    """Over 150 draws, three standard errors below 90 %; half within clusters, or uniform over all pairs."""
    y, labels, beliefs = made(kind, np.random.default_rng(1))
    held = np.zeros((DRAWS, 4), dtype=bool)
    for seed in range(DRAWS):
        if uniform:
            rng = np.random.default_rng(seed)
            i = rng.integers(N, size=300)
            j = (i + rng.integers(1, N, size=300)) % N
            asked = TrustedPairs(i, j, y[i] == y[j], np.ones(300))
        else:
            t = draw_trusted(labels, 100, random_state=seed)
            i, j = t["i"].to_numpy(), t["j"].to_numpy()
            asked = TrustedPairs(i, j, y[i] == y[j], t["probability"].to_numpy())
        found = with_trusted_pairs(labels, beliefs, asked)
        parts = (found.accuracy, found.purity, found.precision, found.recall)
        held[seed] = [e.low <= t <= e.high for e, t in zip(parts, truth(y, labels), strict=True)]
    assert (held.mean(axis=0) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / DRAWS)).all()


def test_good_beliefs_narrow_the_interval():
    y, labels, beliefs = made("honest", np.random.default_rng(1))
    widths = {}
    for name, given in (("good", beliefs), ("none", np.full((N, K), 1 / K))):
        each = []
        for seed in range(40):
            t = draw_trusted(labels, 200, random_state=seed)
            i, j = t["i"].to_numpy(), t["j"].to_numpy()
            found = with_trusted_pairs(
                labels, given, TrustedPairs(i, j, y[i] == y[j], t["probability"].to_numpy())
            ).precision
            each.append(found.high - found.low)
        widths[name] = np.mean(each)
    assert widths["good"] < widths["none"]


def test_accuracy_is_never_outside_what_exact_rates_allow():
    """Many small tables of counts: Q - what may be split <= accuracy <= sqrt Q, at the true Q and e."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        counts = rng.poisson(rng.choice([0.3, 2.0, 20.0], size=(4, 4), p=[0.6, 0.2, 0.2]))
        if counts.sum() < 2:
            continue
        y = np.concatenate([np.full(counts[k, c], c) for k in range(4) for c in range(4)])
        labels = np.concatenate([np.full(counts[k, c], k) for k in range(4) for c in range(4)])
        n, size = counts.sum(), counts.sum(axis=1)
        q = (np.square(counts).sum(axis=1) / np.maximum(size, 1)).sum() / n
        e = (np.square(counts.sum(axis=0)).sum() - np.square(counts).sum()) / n**2
        accuracy = metrics.acc(y, labels)
        assert q - most_split(q, e, size / n) - 1e-9 <= accuracy <= np.sqrt(q) + 1e-9


def test_pairs_to_trust_are_drawn_as_they_say():
    labels = np.repeat([0, 1, 2], [2, 60, 138])
    t = pd.concat([draw_trusted(labels, 400, random_state=s) for s in range(40)])
    within = labels[t["i"]] == labels[t["j"]]
    assert within.mean() == 0.5
    assert (t["i"] != t["j"]).all()
    small = (labels[t["i"]] == 0)[within]
    assert small.mean() == pytest.approx(2 / 200, abs=3 * np.sqrt(0.01 / within.sum()))
    keys = pd.Series([frozenset(p) for p in t[within][["i", "j"]].to_numpy().tolist()])
    # By its probability, a pair of the middle cluster is drawn so often.
    rate = t[within][(labels[t[within]["i"]] == 1)]["probability"].iloc[0] * len(keys)
    seen = keys[[labels[min(k)] == 1 for k in keys]].value_counts()
    assert seen.sum() / (60 * 59 / 2) == pytest.approx(rate, rel=0.1)
    with pytest.raises(ValueError, match="labels: expected two clusters"):
        draw_trusted(np.zeros(10, dtype=int), 20)


def test_bad_trusted_pairs_are_refused():
    names = [f"item {n}" for n in range(50)]
    good = pd.DataFrame({"i": names[:30], "j": names[1:31], "similar": [1, 0] * 15})
    read = read_trusted_pairs(good, names)
    assert read.i.tolist() == list(range(30))
    assert read.similar.tolist() == [True, False] * 15
    odd = [
        good.drop(columns="similar"),
        good.assign(i="nobody"),
        good.assign(j=good["i"]),
        good.assign(similar=None),
        good.assign(probability=0.0),
        good.assign(probability="often"),
    ]
    for table in odd:
        with pytest.raises(PairDataError, match="trusted: expected"):
            read_trusted_pairs(table, names)
    with pytest.raises(PairDataError, match="at least 10 pairs within clusters"):
        check_drawn(read, np.arange(50))


def test_a_diagnosis_takes_trusted_pairs():
    blobs = make_blobs(n=80, n_pairs=300, seed=0)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    est = VolMaxDCC(
        3, hidden=(8,), epochs=1, scale="standard", confusion="none", volume=0.0, init="kmeans", random_state=0
    ).fit(*given)
    table = draw_trusted(est.labels_, 60)
    table["similar"] = blobs.y[table["i"]] == blobs.y[table["j"]]
    found = est.diagnose(*given, trusted=table, quick=True, draws=2, work=0.1)
    assert found.trusted
    assert found.accuracy.low <= metrics.acc(blobs.y, est.labels_) <= found.accuracy.high
    assert "by the trusted pairs" in str(found)
    assert found.to_dict()["purity"]["low"] == found.purity.low > 0.5
    with pytest.raises(PairDataError, match="pairs within clusters"):
        est.diagnose(*given, trusted=table[est.labels_[table["i"]] != est.labels_[table["j"]]], quick=True)


def test_trusted_pairs_are_answered_in_words(caplog):
    names = [f"item {n}" for n in range(60)]
    words = ["Same", "different", "yes", "no", "don't know", "match", "distinct", "1", "0", "", "Same topic", None]
    table = pd.DataFrame({"i": names[:36], "j": names[1:37], "similar": words * 3}).astype(object)
    table["probability"] = np.arange(36) + 1.0
    with caplog.at_level("INFO", logger="pdcc"):
        read = read_given(table, names)
    kept = [k for k in range(36) if k % 12 not in (4, 9, 11)]
    assert read.i.tolist() == kept
    assert read.j.tolist() == [k + 1 for k in kept]
    assert read.similar.tolist() == [True, False, True, False, True, False, True, False, True] * 3
    assert read.probability.tolist() == [k + 1.0 for k in kept]
    assert caplog.messages == [
        "trusted: Read by their beginning: 'Same topic' as same.",
        'trusted: left out 9 of 36 pairs, without an opinion: empty (6) or "don\'t know" (3).',
    ]
    for similar in ([True, False], [1, -1], [1.0, 0.0], np.array([1, 0])):
        plain = table.assign(similar=np.tile(similar, 18))
        assert read_given(plain, names).similar.tolist() == [True, False] * 18
    for bad, found in (("perhaps", "'perhaps', not a word"), (0.7, "'0.7', a graded answer"), (5, "'5', not 0 and 1")):
        table.loc[7, "similar"] = bad
        with pytest.raises(PairDataError, match=f"column similar, such as .*, found {found}") as error:
            read_given(table, names)
        assert error.value.row == 7
    table.loc[7, "similar"] = "same"
    table.loc[20, "j"] = "nobody"
    with pytest.raises(PairDataError, match="items that were fitted, found 'nobody'") as error:
        read_given(table, names)
    assert error.value.row == 20


def test_trusted_labels_come_in_the_forms_people_have():
    names = [f"item {n}" for n in range(50)]
    table = pd.DataFrame({"customer": names[10:40], "label": list("abc") * 10})
    by_item = table.set_index("customer")["label"]
    for given in (by_item, by_item.to_dict(), with_items(table, "customer"), with_items(by_item, "customer")):
        read = read_given(given, names)
        assert read.rows.tolist() == list(range(10, 40))
        assert read.classes.tolist() == [0, 1, 2] * 10
    assert read_given(pd.Series(list("ab") * 15), list(range(50))).rows.tolist() == list(range(30))
    with pytest.raises(PairDataError, match="one label per item"):
        read_given(pd.concat([by_item, by_item]), names)
    wrong = table.set_axis(["id", "segment"], axis=1)
    with pytest.raises(PairDataError, match=r"a column 'item', found the columns id, segment. Name .* item and label"):
        read_given(with_items(wrong, "customer"), names)
    pairs = pd.DataFrame({"i": names[:30], "j": names[1:31], "similar": 1})
    assert with_items(pairs.assign(customer=0), "customer").columns.tolist() == ["i", "j", "similar", "customer"]
    with pytest.raises(PairDataError, match="a column 'similar'"):
        read_given(pairs.drop(columns="similar"), names)


def test_items_of_trusted_labels_may_be_called_as_in_the_index():
    blobs = make_blobs(n=80, n_pairs=300, seed=0)
    ids = np.array([f"c{n}" for n in range(80)])
    X = pd.DataFrame(blobs.X, index=pd.Index(ids, name="customer")).rename(columns="x{}".format)
    given = X, ids[blobs.answers.pairs], blobs.answers.similar
    est = VolMaxDCC(
        3, hidden=(8,), epochs=1, scale="standard", confusion="none", volume=0.0, init="kmeans", random_state=0
    ).fit(*given)
    table = pd.DataFrame({"customer": ids[:40], "label": blobs.y[:40]})
    how = {"quick": True, "draws": 2, "work": 0.1}
    one, other = (est.diagnose(*given, trusted=known, **how) for known in (table, table.set_index("customer")["label"]))
    assert one.trusted
    assert one.accuracy == other.accuracy
    assert table.columns[0] == "customer"  # as it was
