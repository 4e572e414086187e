"""What to ask next, which answers are wrong, whom to trust."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from pdcc import PairData, VolMaxDCC
from pdcc.accuracy.beliefs import Calibration, Judged
from pdcc.accuracy.folds import fold_fits
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.asking.crossfit import SHARE, cross_fit
from pdcc.asking.reliability import annotator_reliability
from pdcc.asking.stopping import expect_from
from pdcc.asking.suggest import information, suggest_pairs

SMALL = {"hidden": (16,), "epochs": 15, "scale": "standard", "confusion": "pooled", "volume": 0.0, "progress": False}


@pytest.fixture(scope="module")
def asked():
    """Three blobs, 600 answers, a tenth of them flipped, by five annotators of whom the last answers by coin."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = 4 * np.eye(3)[y] + rng.normal(size=(120, 3))
    pairs = draw_pairs(120, 600, rng)
    answers = answer_with_flips(y, pairs, 0.1, rng)
    who = rng.integers(5, size=600)
    similar = np.where(who == 4, rng.random(600) < 0.5, answers.similar)
    names = np.array(["ann", "bob", "cid", "dee", "coin"])[who]
    est = VolMaxDCC(3, random_state=0, **SMALL).fit(X, pairs, similar, names)
    return est, X, y, pairs, similar, names


@pytest.fixture(scope="module")
def audited(asked):
    est, X, _, pairs, similar, names = asked
    return est.audit_answers(X, pairs, similar, names)


def test_wrong_answers_are_found_in_their_order(asked, audited):
    _, _, y, pairs, similar, names = asked
    truth = y[pairs[:, 0]] == y[pairs[:, 1]]
    assert audited["i"].tolist() == pairs[:, 0].tolist()
    assert audited["annotator"].tolist() == names.tolist()
    assert audited["wrong"].between(0, 1).all()
    assert roc_auc_score(similar != truth, audited["wrong"]) > 0.95
    worst = audited.loc[audited["wrong"].idxmax()]
    assert worst["reason"].startswith("said " + ("similar" if worst["similar"] else "different"))
    # Calibrated: 600 answers, so the expected number of wrong ones has a standard error of about 8.
    assert audited["wrong"].sum() == pytest.approx((similar != truth).sum(), abs=24)


def test_an_answer_is_not_judged_by_itself(asked):
    """Where an item has one answer that a fit did not see, that answer leaves the fit's belief about it as it is; others move it."""
    est, X, _, pairs, similar, names = asked
    data = PairData.from_arrays(X, pairs, similar, names)
    found = cross_fit(est.fitted_, data)
    at = Judged(fold_fits(est.fitted_, data, (SHARE,), seed=0)[0], data)
    calibrated = Calibration([at])
    before = calibrated.beliefs(calibrated.mode, 0, at.used)[at.at_left].numpy()
    alone = np.bincount(np.concatenate([at.at_left, at.at_right]))[at.at_left] == 1
    assert alone.sum() > 20
    np.testing.assert_allclose(found.left[alone], before[alone], atol=1e-4)
    assert np.abs(found.left[~alone] - before[~alone]).max() > 0.01
    other = PairData.from_arrays(X, pairs, ~similar, names)
    with pytest.raises(ValueError, match=r"^pairs, similar: expected the answers that were fitted"):
        cross_fit(est.fitted_, other)


def test_reliability_knows_the_coin(asked, audited):
    est = asked[0]
    table = est.annotator_reliability_.set_index("annotator")
    assert table["answers"].sum() == 600
    assert (table["low"] < table["reliability"]).all()
    assert (table["reliability"] < table["high"]).all()
    assert table.loc["coin", "high"] < table.drop(index="coin")["reliability"].min()
    assert table.loc["coin", "flag"] == "answers do not depend on the items"
    assert (table.drop(index="coin")["flag"] == "").all()


def test_without_ids_there_is_one_row(asked):
    est, X, _, pairs, similar, _ = asked
    data = PairData.from_arrays(X, pairs, similar)
    table = annotator_reliability(data, est.audit_answers(X, pairs, similar, asked[5]))
    assert table["annotator"].tolist() == ["all"]


def test_who_is_worse_than_the_others_is_flagged():
    """Five annotators of 100 answers each, 10 % of them wrong, are flagged in no more of 100 draws than SURE says; one with 40 % is in nearly all."""
    rng, who = np.random.default_rng(2), np.repeat(np.arange(5), 100)
    pairs = draw_pairs(60, 500, rng)
    data = PairData.from_arrays(np.zeros((60, 2)) + np.arange(60)[:, None], pairs, rng.random(500) < 0.5, who)

    def flagged(rates):
        # same: half a half, so that no one's answers are tested for saying nothing about the items.
        audit = pd.DataFrame(
            {
                "wrong": (rng.random(500) < rates[who]) * 1.0,
                "same": 0.5,
                "expected": 0.5,
                "cluster_i": 0,
                "cluster_j": 1,
            }
        )
        return "wrong more often" in " ".join(annotator_reliability(data, audit.iloc[: len(data)])["flag"])

    alike = sum(flagged(np.full(5, 0.1)) for _ in range(100))
    assert alike <= 1 + 3 * np.sqrt(100 * 0.01 * 0.99)
    assert sum(flagged(np.array([0.1, 0.1, 0.4, 0.1, 0.1])) for _ in range(20)) >= 19


def made_up_audit(who, rate, rng):
    """Answers of ``who`` (M,), wrong with probability ``rate`` and known to be so."""
    pairs = draw_pairs(60, len(who), rng)
    data = PairData.from_arrays(np.zeros((60, 2)) + np.arange(60)[:, None], pairs, rng.random(len(who)) < 0.5, who)
    wrong = np.clip((rng.random(len(who)) < rate) * 1.0, 0.005, 0.995)
    return data, pd.DataFrame({"wrong": wrong, "same": 0.5, "expected": 0.5, "cluster_i": 0, "cluster_j": 1})


def test_whom_few_answers_are_compared_with_is_not_taken_for_certain():
    """One of 3,000 answers and one of 30, 15 % wrong alike: neither is flagged oftener than SURE says."""
    rng, who = np.random.default_rng(3), np.repeat([0, 1], [3000, 30])
    flags = [annotator_reliability(*made_up_audit(who, 0.15, rng))["flag"] for _ in range(60)]
    assert sum(each.str.contains("wrong more").any() for each in flags) <= 60 * 0.01 + 3 * np.sqrt(60 * 0.01)


@pytest.mark.parametrize("each", [2, 10, 100])
def test_annotators_of_few_answers_are_drawn_to_the_others(each):
    """All are right in nine answers of ten: intervals hold that rate for nearly all, and none is certain from two answers."""
    rng = np.random.default_rng(each)
    table = annotator_reliability(*made_up_audit(np.repeat(np.arange(1200 // each), each), 0.1, rng))
    held = ((table["low"] <= 0.9) & (0.9 <= table["high"])).mean()
    assert held >= 0.9 - 3 * np.sqrt(0.09 / len(table))
    assert table["reliability"].between(0.8, 0.97).all()
    assert (table["high"] - table["low"]).min() > 0.02


def test_who_exchanged_similar_and_different_is_told_from_who_does_not_look():
    rng, who = np.random.default_rng(4), np.repeat(np.arange(8), 300)
    pairs, same = draw_pairs(60, 2400, rng), rng.random(2400) < 0.4
    given = same ^ (rng.random(2400) < 0.1)
    given[who == 2] = ~given[who == 2]
    given[who == 3] = rng.random(300) < 0.4
    data = PairData.from_arrays(np.zeros((60, 2)) + np.arange(60)[:, None], pairs, given, who)
    known = {
        "wrong": np.clip((given != same) * 1.0, 0.005, 0.995),
        "same": same * 1.0,
        "expected": np.where(same, 0.9, 0.1),
    }
    audit = pd.DataFrame(known | {"cluster_i": 0, "cluster_j": 1})
    flags = annotator_reliability(data, audit).set_index("annotator")["flag"]
    assert (flags.drop(index=[2, 3]) == "").all()
    assert flags[2] == "similar and different seem exchanged"
    assert flags[3] == "answers do not depend on the items"


@pytest.mark.parametrize("copied", [60, 57])
def test_one_who_answers_as_another_is_flagged_though_no_others_share_pairs(copied):
    """Annotator 1 was asked the first sixty pairs of annotator 0; three other answers are a difference."""
    rng = np.random.default_rng(5)
    pairs = draw_pairs(80, 300, rng, distinct=True)
    pairs, who = np.concatenate([pairs, pairs[:60]]), np.r_[np.repeat([0, 2, 3], 100), np.ones(60, dtype=int)]
    given, wrong = rng.random(300) < 0.4, np.where(rng.random(300) < 0.1, 0.95, 0.02)
    also, mistaken = given[:60].copy(), wrong[:60].copy()
    also[copied:] ^= True
    mistaken[copied:] = 0.9
    data = PairData.from_arrays(np.arange(160.0).reshape(80, 2), pairs, np.r_[given, also], who)
    audit = pd.DataFrame(
        {"wrong": np.r_[wrong, mistaken], "same": 0.5, "expected": 0.5, "cluster_i": 0, "cluster_j": 1}
    )
    flags = annotator_reliability(data, audit).set_index("annotator")["flag"]
    assert ("the same answers, wherever both were asked, as 0" in flags[1]) == (copied == 60)
    assert not flags.loc[[2, 3]].str.contains("same answers").any()


def test_copies_are_flagged():
    """Two annotators with the same twenty mistakes in fifty common pairs, and a third with others."""
    rng = np.random.default_rng(1)
    pairs = np.tile(draw_pairs(60, 50, rng, distinct=True), (3, 1))
    who = np.repeat([0, 1, 2], 50)
    wrong = np.zeros((3, 50))
    wrong[0, :20] = wrong[1, :20] = 0.95
    wrong[2, 30:] = 0.95
    given = (np.arange(150) % 2 == 0) ^ (wrong.ravel() > 0.5)
    data = PairData.from_arrays(np.zeros((60, 2)) + np.arange(60)[:, None], pairs, given, who)
    audit = pd.DataFrame(
        {"wrong": wrong.ravel(), "same": 0.5, "expected": 0.5, "cluster_i": 0, "cluster_j": 1, "similar": data.similar}
    )
    table = annotator_reliability(data, audit).set_index("annotator")
    assert "shares mistakes with 1" in table.loc[0, "flag"]
    assert "shares" not in table.loc[2, "flag"]
    pd.testing.assert_frame_equal(
        annotator_reliability(data, audit.sample(frac=1, random_state=0)).set_index("annotator"), table
    )
    with pytest.raises(ValueError, match=r"^audit: expected a row for each of the 150 answers, found 149"):
        annotator_reliability(data, audit.iloc[1:])


def test_hard_pairs_do_not_make_copies():
    """Five honest annotators are wrong about the same tenth of the pairs half of the time."""
    rng = np.random.default_rng(0)
    base = draw_pairs(80, 300, rng, distinct=True)
    wrong = rng.random((5, 300)) < np.where(np.arange(300) < 30, 0.5, 0.05)
    truth = np.arange(300) % 3 == 0
    data = PairData.from_arrays(
        rng.normal(size=(80, 2)), np.tile(base, (5, 1)), (truth ^ wrong).ravel(), np.repeat(np.arange(5), 300)
    )
    audit = pd.DataFrame(
        {
            "wrong": wrong.ravel().astype(float),
            "same": np.tile(truth, 5).astype(float),
            "expected": 0.5,
            "cluster_i": 0,
            "cluster_j": 1,
        }
    )
    assert not annotator_reliability(data, audit)["flag"].str.contains("shares").any()


def test_answers_that_say_neither_are_not_judged(asked):
    _, X, _, pairs, similar, names = asked
    soft = np.where(np.arange(600) % 6 == 0, 0.5, similar.astype(float))
    est = VolMaxDCC(3, random_state=0, **SMALL).fit(X, pairs, soft, names, soft=True)
    table = est.audit_answers(X, pairs, soft, names, soft=True)
    assert table["wrong"].isna().tolist() == (soft == 0.5).tolist()
    assert est.annotator_reliability_["answers"].sum() == 500


def test_information_is_about_classes_and_not_about_noise():
    sure, open_ = np.eye(3)[[0]], np.array([[0.5, 0.5, 0.0]])
    clean, coin = np.eye(3), np.full((3, 3), 0.5)
    assert information(open_, sure, clean)[0] == pytest.approx(np.log(2))
    assert information(sure, sure, clean)[0] == pytest.approx(0, abs=1e-9)
    assert information(open_, sure, coin)[0] == pytest.approx(0, abs=1e-9)  # uncertain, and tells nothing


@pytest.fixture(scope="module")
def beliefs():
    """200 items, most of them settled, rows 0 to 19 between clusters 0 and 1, 20 to 39 between 1 and 2."""
    m = 0.97 * np.eye(3)[np.arange(200) % 3] + 0.01
    m[:20], m[20:40] = [0.49, 0.49, 0.02], [0.02, 0.49, 0.49]
    return m


def test_suggestions_are_about_open_items_diverse_and_partly_random(beliefs):
    B = 0.8 * np.eye(3) + 0.1
    table = suggest_pairs(beliefs, B, n=40, random_state=0)
    many = suggest_pairs(beliefs, B, n=400, random_state=0)
    assert (
        10 < (many["chosen_by"][:100] == "random").sum() < 32
    )  # a fifth of the first rows too (20, within three standard errors)
    assert list(table.columns) == ["i", "j", "gain", "chosen_by", "probability"]
    assert len(table) == 40
    assert (table["chosen_by"] == "random").sum() == 8
    assert table["probability"].between(0, 1).all()
    assert (table["i"] != table["j"]).all()
    assert len({frozenset(p) for p in table[["i", "j"]].to_numpy().tolist()}) == 40
    told = table[table["chosen_by"] == "suggested"]
    open_ = (told[["i", "j"]] < 40).sum(axis=1)
    assert (open_ >= 1).mean() > 0.8
    uses = np.bincount(told[["i", "j"]].to_numpy().ravel(), minlength=200)
    assert (uses[:40] > 0).sum() > 20  # one item after the other, not the most uncertain one again and again
    pd.testing.assert_frame_equal(table, suggest_pairs(beliefs, B, n=40, random_state=0))
    i, j = np.triu_indices(200, 1)
    assert told["gain"].mean() > 2.5 * information(beliefs[i], beliefs[j], B).mean()


def test_suggestions_can_be_aimed_and_leave_out_what_is_known(beliefs):
    B = 0.8 * np.eye(3) + 0.1
    told = suggest_pairs(beliefs, B, n=30, aim=(1, 2), random_state=1).query("chosen_by == 'suggested'")
    ends = told[["i", "j"]].to_numpy()
    # Both groups of open items may be of cluster 1, but only the second is wholly believed to be in 1 or 2.
    assert (((ends >= 20) & (ends < 40)).any(axis=1)).sum() > (ends < 20).any(axis=1).sum()
    before = told[["i", "j"]].to_numpy()
    again = suggest_pairs(beliefs, B, n=30, aim=(1, 2), random_state=1, exclude=before)
    both = {frozenset(p) for p in before.tolist()} & {frozenset(p) for p in again[["i", "j"]].to_numpy().tolist()}
    assert not both
    with pytest.raises(ValueError, match=r"^aim: expected one or two clusters from 0 to 2, found 3"):
        suggest_pairs(beliefs, B, n=3, aim=3)
    with pytest.raises(ValueError, match=r"^aim: expected clusters that some item may be in"):
        suggest_pairs(np.eye(3)[np.zeros(9, int)], B, n=3, aim=2)
    with pytest.raises(ValueError, match=r"^n: expected at most the 3 pairs"):
        suggest_pairs(beliefs[:3], B, n=4)
    with pytest.raises(ValueError, match=r"^exclude: expected pairs of row numbers below 200"):
        suggest_pairs(beliefs, B, n=4, exclude=[[0, 200]])


def test_every_pair_there_is_can_be_asked_for(beliefs):
    table = suggest_pairs(beliefs[:5], 0.8 * np.eye(3) + 0.1, n=10, random_state=0)
    assert len({frozenset(p) for p in table[["i", "j"]].to_numpy().tolist()}) == 10


def test_probabilities_are_how_often_pairs_are_chosen(beliefs):
    """Over 400 batches of four: pairs that are chosen most are said to be (forty of them, so a mean over these has a standard error of 3 %)."""
    B, batches = 0.8 * np.eye(3) + 0.1, 400
    m = np.concatenate([beliefs[:3], beliefs[20:22], beliefs[40:49]])
    said: dict[tuple[int, int], list[float]] = {}
    for seed in range(batches):
        told = suggest_pairs(m, B, n=5, random_state=seed).query("chosen_by == 'suggested'")
        for i, j, p in zip(told["i"], told["j"], told["probability"], strict=True):
            said.setdefault((min(i, j), max(i, j)), []).append(p)
    often = [(len(ps) / batches, np.mean(ps)) for ps in said.values() if len(ps) >= 20]
    assert len(often) > 20
    chosen, promised = np.mean(often, axis=0)
    assert promised == pytest.approx(chosen, rel=0.2)
    assert sum(np.mean(ps) for ps in said.values()) == pytest.approx(4, rel=0.15)


def test_more_answers_settle_items_where_some_are_open(beliefs):
    B = 0.8 * np.eye(3) + 0.1
    pairs = suggest_pairs(beliefs, B, n=100, random_state=0)
    found = expect_from(beliefs, B, pairs)
    assert found.settled[0] <= found.settled[1] <= found.settled[2]
    assert found.settled[1] > 3
    assert found.accuracy[1] > 0.01
    assert "stop if that is not worth it" in str(found)
    nothing = expect_from(beliefs, np.full((3, 3), 0.3), pairs)  # annotators who do not look
    assert nothing.settled[1] == pytest.approx(0, abs=0.5)
    assert nothing.accuracy[1] == pytest.approx(0, abs=1e-6)
