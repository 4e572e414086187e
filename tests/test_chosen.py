"""Answers that were not drawn at random: how they are told apart, carried, and judged by."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import PairAnswers, PairData, PairDataError, VolMaxDCC, metrics, read_answers
from pdcc.accuracy import estimate
from pdcc.accuracy.estimate import SHARES, judge_labels
from pdcc.accuracy.folds import FoldFits, _parts
from pdcc.annotators import answer_with_flips, draw_pairs, mistaken_labels
from pdcc.asking.suggest import suggest_pairs
from pdcc.data.scaling import Scaler
from pdcc.identifiability.evidence import gather
from pdcc.storage import run as runs
from pdcc.storage.lock import claimed

SMALL = {"hidden": (8,), "epochs": 2, "scale": "standard", "confusion": "none", "volume": 0.0, "init": "kmeans"}
WORDS = np.array(["random", "suggested", "suggested"])


@pytest.fixture(scope="module")
def asked():
    """Blobs, a table of their answers, and which pairs were drawn at random."""
    blobs = make_blobs(n=60, n_pairs=240, seed=0)
    words = WORDS[np.arange(240) % 3]
    i, j = blobs.answers.pairs.T
    table = pd.DataFrame({"i": i, "j": j, "similar": blobs.answers.similar.astype(int), "chosen_by": words})
    return blobs.X, table.assign(probability=0.25), words == "random"


def test_the_words_are_carried_from_a_file_to_a_run(asked, tmp_path):
    X, table, drawn = asked
    table.to_csv(tmp_path / "answers.csv", index=False)
    read = read_answers(tmp_path / "answers.csv")
    assert read.frame["chosen_by"].tolist() == table["chosen_by"].tolist()
    assert read.frame["probability"].tolist() == [0.25] * 240
    assert not read.notes
    data = PairData.from_arrays(X, read)
    np.testing.assert_array_equal(data.random, drawn)
    np.testing.assert_array_equal(data.subset(np.array([4, 3])).random, [False, True])
    est = VolMaxDCC(3, random_state=0, **SMALL).fit_data(data)
    with claimed(tmp_path / "run"):
        runs.finish(tmp_path / "run", *est.described(), data, "test", X=X)
    again = runs.read_data(tmp_path / "run")
    np.testing.assert_array_equal(again.random, drawn)
    assert est.fitted_.holds(again)
    assert est.fitted_.holds(PairData.from_arrays(X, table[["i", "j", "similar"]]))  # a fit does not depend on it


def test_answers_that_split_with_the_items_keep_the_words(asked):
    X, table, drawn = asked
    y = PairAnswers.from_frame(len(X), table)
    rows = np.arange(len(X)) % 4 > 0
    inside = rows[table["i"]] & rows[table["j"]]
    np.testing.assert_array_equal(y[rows].random, drawn[inside])
    same = PairAnswers.from_arrays(len(X), y.pairs, y.similar, chosen_by=table["chosen_by"])
    np.testing.assert_array_equal(PairData.from_arrays(X, same).random, drawn)
    assert PairAnswers.from_frame(len(X), table.assign(chosen_by="random")).random is None  # nothing to tell apart


def test_other_words_are_refused_and_a_probability_alone_means_nothing(asked, tmp_path):
    X, table, _ = asked
    odd = table.astype({"chosen_by": object})
    odd.loc[7, "chosen_by"] = "by hand"
    with pytest.raises(PairDataError, match="chosen_by") as error:
        PairData.from_arrays(X, odd)
    assert error.value.row == 7
    odd.to_csv(tmp_path / "odd.csv", index=False)
    with pytest.raises(PairDataError, match="neither random nor suggested"):
        read_answers(tmp_path / "odd.csv")
    with pytest.raises(PairDataError, match="chosen_by: expected a word for each of the 240 pairs"):
        PairAnswers.from_arrays(len(X), table[["i", "j"]].to_numpy(), table["similar"], chosen_by=["random"])
    table.drop(columns="chosen_by").to_csv(tmp_path / "alone.csv", index=False)
    read = read_answers(tmp_path / "alone.csv")
    assert read.frame.columns.tolist() == ["i", "j", "similar"]
    assert "Columns that are ignored: probability." in read.notes


def test_an_empty_word_means_drawn_at_random(asked, tmp_path):
    """As where answers of ``pdcc suggest`` are put after answers that have no such column."""
    X, table, drawn = asked
    parts = table[:100].drop(columns=["chosen_by", "probability"]), table[100:]
    for k, part in enumerate(parts):
        part.to_csv(tmp_path / f"{k}.csv", index=False)
    both = pd.concat([read_answers(tmp_path / f"{k}.csv").frame for k in range(2)])
    expected = np.r_[np.ones(100, dtype=bool), drawn[100:]]
    data = PairData.from_arrays(X, both)
    np.testing.assert_array_equal(data.random, expected)
    est = VolMaxDCC(3, random_state=0, **SMALL).fit(X, parts[0])
    assert est.refit(X, both).fitted_.holds(data)
    both.to_csv(tmp_path / "both.csv", index=False)
    read = read_answers(tmp_path / "both.csv")
    assert read.frame["chosen_by"].tolist() == np.where(expected, "random", "suggested").tolist()
    for nothing in (None, np.nan, pd.NA, "", " "):
        words = pd.Series(["suggested", nothing], dtype=object)
        one = PairAnswers.from_arrays(3, [[0, 1], [1, 2]], [1, 0], chosen_by=words)
        assert one.random.tolist() == [False, True]


K = 3
NOISE = 0.12


def told_by(F, pairs, similar):
    """Memberships (N, K) after answers about pairs, by Bayes, each partner taken as it was before."""
    B = (1 - 2 * NOISE) * np.eye(K) + NOISE
    log = np.log(F)
    for one, two in ((0, 1), (1, 0)):
        p = F[pairs[:, two]] @ B
        np.add.at(log, pairs[:, one], np.log(np.where(similar[:, None], p, 1 - p)))
    out = np.exp(log - log.max(axis=1, keepdims=True))
    return np.clip(out / out.sum(axis=1, keepdims=True), 1e-4, None)


def asked_in_rounds(seed, mind=0.0, n=200, m=800):
    """(classes, data, memberships, fits to parts): three tenths of the answers at random, then five rounds of suggestions."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    sure = 1 - np.minimum(0.25 * rng.exponential(size=n), 0.6)
    start = np.full((n, K), ((1 - sure) / (K - 1))[:, None].repeat(K, 1))
    start[np.arange(n), np.where(rng.random(n) < sure, y, (y + rng.integers(1, K, size=n)) % K)] = sure
    seen = mistaken_labels(y, mind, rng) if mind else y
    pairs = draw_pairs(n, round(0.3 * m), rng)
    words, B = np.full(len(pairs), "random"), (1 - 2 * NOISE) * np.eye(K) + NOISE
    similar = answer_with_flips(seen, pairs, 0.0 if mind else NOISE, rng).similar
    for r in range(5):
        F = told_by(start, pairs, similar)
        table = suggest_pairs(F / F.sum(axis=1, keepdims=True), B, n=round(0.14 * m), random_state=10 * seed + r)
        more = table[["i", "j"]].to_numpy()
        said = answer_with_flips(seen, more, 0.0 if mind else NOISE, rng).similar
        pairs, similar = np.concatenate([pairs, more]), np.concatenate([similar, said])
        words = np.concatenate([words, table["chosen_by"]])
    data = PairData.from_arrays(np.zeros((n, 1)), PairAnswers.from_arrays(n, pairs, similar, chosen_by=words))
    fits = []
    for share in SHARES:
        parts, judged_by = _parts(data, share, seed)
        each = [told_by(start, pairs[part], similar[part]) for part in parts]
        fits.append(FoldFits(share, np.stack([F / F.sum(axis=1, keepdims=True) for F in each]), judged_by))
    return y, data, told_by(start, pairs, similar), fits


def judged(monkeypatch, data, F, fits):
    """``judge_labels`` with fits that are already there."""
    monkeypatch.setattr(estimate, "fold_fits", lambda *_, **__: fits)
    scaler = Scaler.fit(data.features, None)
    fitted = SimpleNamespace(memberships=lambda _: F, config=SimpleNamespace(n_clusters=K), scaler=scaler)
    return judge_labels(fitted, data)


@pytest.mark.slow
def test_intervals_hold_after_five_rounds_of_suggestions(monkeypatch):
    """Six runs: three standard errors below 90 %, no dependence seen by random pairs, and errors of half an interval's width."""
    covered, misses, ps = [], [], []
    for seed in range(6):
        y, data, F, fits = asked_in_rounds(seed)
        found = judged(monkeypatch, data, F, fits)
        ps.append(found.dependence.p)
        truth = metrics.acc(y, F.argmax(axis=1))
        if found.accuracy:
            covered.append(found.accuracy.low <= truth <= found.accuracy.high)
            misses.append(found.accuracy.estimate - truth)
    assert len(covered) >= 5
    assert np.mean(covered) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / len(covered))
    assert abs(np.mean(misses)) < 3 * np.std(misses, ddof=1) / np.sqrt(len(misses)) + 0.01
    assert np.abs(misses).mean() < 0.04
    assert np.mean(np.array(ps) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(ps))


def test_random_pairs_see_labels_in_mind_also_after_suggestions(monkeypatch):
    _, data, F, fits = asked_in_rounds(0, mind=0.25, n=150, m=1800)
    found = judged(monkeypatch, data, F, fits)
    assert not found.accuracy
    assert found.reason in (estimate.TOGETHER, estimate.CLEAN)


def test_random_pairs_test_and_all_calibrate(monkeypatch):
    """Which answers reach the test of dependence, the comparison of rates, and the calibration."""
    _, data, F, fits = asked_in_rounds(2)
    tested, compared, calibrated = [], [], []
    tests, rates, reads = estimate.dependence, estimate._told, estimate._read
    monkeypatch.setattr(estimate, "dependence", lambda found, *a: tested.append(found.sets) or tests(found, *a))
    monkeypatch.setattr(estimate, "_told", lambda at: compared.append(at) or rates(at))
    monkeypatch.setattr(estimate, "_read", lambda found, *a: calibrated.append(found.sets) or reads(found, *a))
    judged(monkeypatch, data, F, fits)
    for at, fit in zip(tested[0], fits, strict=True):
        np.testing.assert_array_equal(at.similar.numpy(), data.similar[data.random])
        np.testing.assert_array_equal(at.left.numpy() // len(F), fit.judged_by[data.random])
    assert len(compared[0].similar) == data.random.sum() < len(data)
    assert all(len(at.similar) == len(data) for at in calibrated[0])


def test_suggested_pairs_alone_make_no_claim(monkeypatch):
    _, data, F, fits = asked_in_rounds(0)
    few = np.zeros(len(data), dtype=bool)
    found = judged(monkeypatch, replace(data, random=few), F, fits)
    assert not found.accuracy
    assert found.reason == estimate.SUGGESTED


def test_held_out_calibration_is_judged_by_random_pairs(asked):
    X, table, drawn = asked
    data = PairData.from_arrays(X, table)
    est = VolMaxDCC(3, random_state=0, validation_fraction=0.3, **SMALL).fit_data(data)
    found = gather(est.fitted_, data, draws=2, n_restarts=1, eps=0.05, work=0.05, seed=0)
    held = est.fitted_.split.held & drawn
    assert 0 < held.sum() < est.fitted_.split.held.sum()
    np.testing.assert_array_equal(found.held_out[1], data.similar[held])
    assert len(found.held_out[0]) == held.sum()
