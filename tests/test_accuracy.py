"""How right the labels are, from answers alone: estimates that hold, and no claim where none can be made."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import PairData, VolMaxDCC, diagnose, metrics
from pdcc.accuracy.beliefs import Calibration, Judged, Read, read
from pdcc.accuracy.dependence import dependence
from pdcc.accuracy.estimate import DOUBT, Estimate, in_line, judge_labels, label_sets, sharpened
from pdcc.accuracy.folds import FoldFits, fold_fits
from pdcc.accuracy.outlook import Outlook, look_ahead
from pdcc.accuracy.trusted import Trusted, matched, named, read_trusted, with_trusted
from pdcc.annotators import answer_by_labels, answer_with_flips, draw_pairs, mistaken_labels
from pdcc.errors import PairDataError
from pdcc.identifiability.verdict import Question
from pdcc.validation import LARGEST_SEED

N, K = 900, 4


def known_fits(seed: int, wrong: float, sets: tuple[float, ...] = (0.8, 0.5), mind: float | None = None):
    """Fits that are wrong about a known share of the items, surest where they are right, and answers of which a tenth is turned round.

    With ``mind`` an annotator takes that share of the items for others instead, once and for all.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=N)
    pairs = draw_pairs(N, 4 * N, rng)
    if mind is None:
        similar = answer_with_flips(y, pairs, 0.1, rng).similar
    else:
        similar = answer_by_labels(y, mistaken_labels(y, mind, rng), pairs).similar
    data = PairData.from_arrays(np.zeros((N, 1)), pairs, similar)
    # P(label right) of an item spreads from one half to one; the mean of it is 1 - wrong.
    sure = 1 - np.minimum(wrong * rng.exponential(size=N), 0.5)
    made = []
    for share in sets:
        n_fits = 2 if share <= 0.5 else 5
        F = np.zeros((n_fits, N, K))
        for v in range(n_fits):
            label = np.where(rng.random(N) < sure, y, (y + rng.integers(1, K, size=N)) % K)
            F[v] = ((1 - sure) / (K - 1))[:, None]
            F[v, np.arange(N), label] = sure
        made.append(FoldFits(share, F, rng.integers(n_fits, size=len(pairs))))
    return y, data, made


def test_known_accuracies_are_found():
    """Twelve simulated sets of fits; the tolerance is three standard errors of what is measured, and their spread must be as claimed."""
    z, miss = [], []
    for seed in range(6):
        for wrong in (0.05, 0.2):
            y, data, fits = known_fits(seed, wrong)
            found = Calibration([Judged(f, data) for f in fits])
            true = np.mean([(F.argmax(axis=1) == y).mean() for F in fits[0].memberships])
            drawn = [read(found, theta).right[0] for theta in found.draws(50, seed)]
            miss.append(read(found, found.mode).right[0] - true)
            z.append(miss[-1] / np.std(drawn))
    assert abs(np.mean(miss)) < 3 * np.std(miss, ddof=1) / np.sqrt(len(miss)) + 0.01  # priors may pull a little
    assert np.abs(miss).mean() < 0.03
    assert np.mean(np.abs(z) < 1.645) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / len(z))


@pytest.mark.slow
def test_independent_answers_are_not_called_dependent_and_labels_in_mind_are():
    null, power = [], []
    for seed in range(7):
        for mind, ps in ((None, null), (0.2, power)):
            _, data, fits = known_fits(seed, 0.1, mind=mind)
            ps.append(dependence(Calibration([Judged(f, data) for f in fits], apart=True), 1, None, seed).p)
    assert np.mean(np.array(null) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(null))
    assert np.mean(np.array(power) < 0.05) > 0.8
    assert 0.2 < np.mean(null) < 0.9


def test_dependence_within_annotators_is_seen_where_there_are_ids():
    """Thirty annotators with labels of their own in mind."""
    rng = np.random.default_rng(0)
    y, data, fits = known_fits(0, 0.05)
    by = rng.integers(30, size=len(data))
    minds = np.stack([mistaken_labels(y, 0.25, rng) for _ in range(30)])
    few = rng.integers(30, size=(len(data), 2))  # each sees a few items often
    few[:, 1] = (few[:, 0] + 1 + few[:, 1] % 29) % 30
    rows = 30 * few + by[:, None]
    similar = minds[by, rows[:, 0]] == minds[by, rows[:, 1]]
    data = PairData.from_arrays(np.zeros((N, 1)), rows, similar, annotators=by)
    found = dependence(Calibration([Judged(f, data) for f in fits], apart=True), 1, data.annotator, 0)
    assert found.p_annotator is not None
    assert found.p_annotator < 0.05


def test_annotators_of_differing_care_are_not_called_dependent():
    """Each turns round a share of their own, 5 to 40 %, whatever the item: at 24 answers per item p was .01 while one rate stood for all."""
    rng = np.random.default_rng(2)
    y, _, (fits, _) = known_fits(2, 0.05)
    pairs = draw_pairs(N, 12 * N, rng)
    by = rng.integers(8, size=len(pairs))
    turned = rng.random(len(pairs)) < np.linspace(0.05, 0.4, 8)[by]
    data = PairData.from_arrays(np.zeros((N, 1)), pairs, (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ turned, annotators=by)
    fits = replace(fits, judged_by=rng.integers(len(fits.memberships), size=len(pairs)))
    found = dependence(Calibration([Judged(fits, data)], apart=True), 0, data.annotator, 2)
    assert found.p_annotator is not None
    assert found.p_annotator > 0.05


def test_sharpening_keeps_the_order_and_hits_the_mean():
    rng = np.random.default_rng(0)
    beliefs = rng.dirichlet([0.5] * K, size=300)
    labels = beliefs.argmax(axis=1)
    for accuracy in (0.3, 0.9, 0.999, 1.0):
        out = sharpened(beliefs, labels, accuracy)
        np.testing.assert_allclose(out.sum(axis=1), 1.0)
        own, before = (np.take_along_axis(b, labels[:, None], 1)[:, 0] for b in (out, beliefs))
        assert own.mean() == pytest.approx(min(accuracy, 1 - 1e-4), abs=1e-6)
        assert (np.diff(own[np.argsort(before)]) > -1e-12).all()
    certain = np.eye(K)[labels]  # nothing is left for the other labels
    assert sharpened(certain, labels, 0.6).max(axis=1).mean() == pytest.approx(0.6, abs=1e-6)


def test_label_sets_are_the_smallest_that_are_sure_enough():
    beliefs = np.array([[0.96, 0.03, 0.01], [0.5, 0.46, 0.04], [0.34, 0.33, 0.33]])
    assert label_sets(beliefs, 0.95) == [[0], [0, 1], [0, 1, 2]]
    assert label_sets(beliefs, 0.97) == [[0, 1], [0, 1, 2], [0, 1, 2]]


def test_trusted_labels_hold_whatever_the_probabilities_say_and_gain_from_good_ones():
    """Coverage over 300 draws of 100 items, with honest probabilities and with misleading ones."""
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=3000)
    p = rng.beta(6, 1.5, size=3000)
    right = rng.random(3000) < p
    labels = np.where(right, y, (y + 1) % K)
    truth = metrics.acc(y, labels)
    widths = {}
    for name, given in (("honest", p), ("misleading", 1 - p), ("nothing", np.full(3000, 0.5))):
        found = []
        for _ in range(300):
            rows = rng.choice(3000, size=100, replace=False)
            found.append(with_trusted(labels, given, Trusted(rows, y[rows])))
        covered = np.mean([f.low <= truth <= f.high for f in found])
        assert covered > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 300)
        widths[name] = np.mean([f.high - f.low for f in found])
    assert widths["honest"] < widths["nothing"]


def test_no_item_vouches_for_itself():
    assert not matched(np.array([0, 1, 2]), np.array([5, 6, 7])).all()
    assert matched(np.repeat([0, 1, 2], 5), np.repeat([7, 5, 6], 5)).all()
    assert named(np.array([2, 2, 0, 0]), np.array([0, 0, 1, 2])).tolist() == [True, True, True, False]


def test_trusted_labels_hold_where_chance_names_clusters():
    """Classes 0 and 1 share a cluster and class 2 is cut in two: by others alone an item of a tie is always wrong, by all of them it is right too often."""
    rng = np.random.default_rng(5)
    N, K = 2000, 4
    y = rng.integers(K, size=N)
    labels = np.where(y == 1, 0, np.where((y == 2) & (rng.random(N) < 0.5), 1, y))
    true = named(labels, y).mean()
    drawn = [np.sort(rng.permutation(N)[:60]) for _ in range(150)]
    found = [with_trusted(labels, np.full(N, 0.5), Trusted(rows, y[rows])) for rows in drawn]
    held = np.array([f.low <= true <= f.high for f in found])
    # 90 % asked for; below .8 would be four standard errors (.024) short of it.
    assert held.mean() > 0.8
    alone = np.array([matched(labels[rows], y[rows]).mean() for rows in drawn])
    assert np.mean(np.abs(alone - true) < 0.1) < 0.75  # what the others alone say is far off too often


def test_bad_trusted_labels_are_refused():
    names = [f"item {n}" for n in range(50)]
    good = pd.DataFrame({"item": names[:30], "label": list("abc") * 10})
    assert read_trusted(good, names).rows.tolist() == list(range(30))
    assert read_trusted(good.rename(columns={"label": "class"}), names).rows.tolist() == list(range(30))
    assert read_trusted(dict(enumerate("ab" * 15)), list(range(50))).classes.tolist() == [0, 1] * 15
    odd = [
        good.rename(columns={"label": "kind"}),
        good.assign(item="nobody"),
        pd.concat([good, good]),
        good.assign(label=None),
        good.head(3),
    ]
    for table in odd:
        with pytest.raises(PairDataError, match="trusted: expected"):
            read_trusted(table, names)
    with pytest.raises(TypeError, match="trusted: expected"):
        read_trusted([1, 2], names)


def test_what_more_answers_would_do():
    """A loss that halves with every doubling needs as many answers again to halve; one that does not fall needs infinitely many."""
    shares = (0.8, 0.5, 0.25)
    falls = np.array([[0.2 / s for s in shares]] * 3)
    found = look_ahead(1000, shares, falls, np.full(3, 0.2), 0.9)
    assert found.more == pytest.approx(1000, rel=1e-6)
    assert "About 1,000 more answers" in str(found)
    flat = look_ahead(1000, shares, np.full((3, 3), 0.2), np.full(3, 0.2), 0.9)
    assert np.isinf(flat.more)
    assert "hardly help" in str(flat)
    wide = Outlook({250: 0.84, 1000: 0.9}, 0.95, 4_000.0, (20.0, np.inf), 1000)  # nothing is known, so no number
    assert "is open" in str(wide)
    assert "About 4,000 more" in str(replace(wide, interval=(800.0, np.inf)))
    assert look_ahead(1000, shares, falls, np.full(3, 0.2), 0.5).goal == 0.9  # the next goal, where the target is met


def test_fold_fits_do_not_see_the_answers_that_judge_them(monkeypatch):
    blobs = make_blobs(n=80, n_pairs=300, seed=0)
    pairs = np.concatenate(
        [blobs.answers.pairs, blobs.answers.pairs[:50, ::-1]]
    )  # some asked twice, the other way round
    similar = np.concatenate([blobs.answers.similar, blobs.answers.similar[:50]])
    est = VolMaxDCC(3, hidden=(8,), epochs=1, confusion="none", volume=0.0, init="kmeans", random_state=0)
    est.fit(blobs.X, pairs, similar)
    data = PairData.from_arrays(blobs.X, pairs, similar)
    seen = []
    real = PairData.subset
    monkeypatch.setattr(PairData, "subset", lambda self, index: seen.append(np.asarray(index)) or real(self, index))
    for fits in fold_fits(est.fitted_, data, (0.8, 0.5, 0.25)):
        for v in range(len(fits.memberships)):
            trained = set(data.asked()[seen[v]].tolist())
            judged = set(data.asked()[fits.judged_by == v].tolist())
            assert trained
            assert judged
            assert not trained & judged
            assert len(seen[v]) / len(data) == pytest.approx(fits.share, abs=0.05)
        del seen[: len(fits.memberships)]
        np.testing.assert_allclose(fits.memberships.sum(axis=2), 1.0)


def test_an_estimate_holds_its_value():
    assert Estimate.of(0.5, [0.6, 0.7]).low == 0.5
    assert str(Estimate()) == "no claim"
    assert not Estimate()
    assert str(Estimate(0.79, 0.84, 0.88)) == "84 % (79-88)"


@pytest.mark.parametrize("kind", ["flips", pytest.param("mind", marks=pytest.mark.slow), "too few", "coin"])
def test_a_fit_end_to_end(kind):
    """Blobs: the interval holds the truth with independent errors; there is no claim for labels in mind, a handful of answers, or a coin's."""
    blobs = make_blobs(n=150, n_pairs=900, flip=0.1, seed=3)
    pairs, similar = blobs.answers.pairs, blobs.answers.similar
    if kind == "mind":
        similar = answer_by_labels(blobs.y, mistaken_labels(blobs.y, 0.25, np.random.default_rng(0)), pairs).similar
    if kind == "coin":
        similar = np.random.default_rng(1).random(len(pairs)) < 0.3
    if kind == "too few":
        pairs, similar = pairs[:12], similar[:12]
    est = VolMaxDCC(3, hidden=(32,), random_state=0).fit(blobs.X, pairs, similar)
    found = est.diagnose(blobs.X, pairs, similar, quick=True, work=2.0)
    truth = metrics.acc(blobs.y, est.labels_)
    text = str(found)
    assert "nan" not in text
    assert found.items["item"].tolist() == list(range(150))
    if kind == "flips":
        assert found.accuracy.low <= truth <= found.accuracy.high
        assert found.accuracy_reason is None
        assert found.overall == "supported"
        assert found.items["settled"].mean() > 0.5
        assert "settled" in text
        assert "<table" in found._repr_html_()
    else:
        assert found.accuracy.estimate is None
        assert found.accuracy_reason
        assert found.overall == "cannot tell"
    if kind == "coin":
        assert est.report_.useful.failures or "no partition predicts left-out answers better" in est.report_.reason
        assert "say nothing" in text
    if kind == "mind":
        assert "annotators themselves" in text
        assert found.agreement.low < 0.75 + 0.1 < 0.95


def test_labels_that_fits_believe_in_more_gain_what_was_wrong_and_lose_what_was_right():
    labels = np.zeros(10, dtype=np.int64)
    # Others believe in .85 of what fits say, which is right in .97: where a third of the doubt is left, a third of the errors is.
    for belief, least, most in ((0.95, 0.99, 1.07), (0.85, 0.97, 0.97), (0.75, 0.87, 0.87)):
        said = Read(np.array([0.97]), np.tile([belief, 1 - belief], (10, 1)), np.full(2, 0.85))
        assert said.of(labels) == pytest.approx(least)
        assert said.of(labels, 1.0) == pytest.approx(most)


def test_trusted_labels_say_nothing_of_single_items_where_answers_do_not():
    rng = np.random.default_rng(0)
    pairs = draw_pairs(90, 300, rng)
    data = PairData.from_arrays(rng.normal(size=(90, 2)), pairs, rng.random(300) < 0.5)
    est = VolMaxDCC(3, hidden=(8,), epochs=2, random_state=0, progress=False).fit_data(data)
    found = judge_labels(est.fitted_, data, quick=True)
    assert not found.accuracy
    told = in_line(found, est.labels_, data, Estimate(0.9, 0.95, 0.99), level=0.95, target=0.8)
    assert not told.items["settled"].any()
    assert not told.clusters["settled"].any()
    assert not told.precision


def test_where_people_would_call_too_few_pairs_similar_no_verdict_goes_by_the_estimate():
    """Two classes in each of two clusters, which no column tells apart: half of the pairs within them are called similar."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    X = np.column_stack([3.0 * (y // 2) + rng.normal(size=240), rng.normal(size=240)])
    pairs = draw_pairs(240, 1500, rng)
    data = PairData.from_arrays(X, pairs, answer_with_flips(y, pairs, 0.05, rng).similar)
    est = VolMaxDCC(2, hidden=(16,), init="kmeans", epochs=3, random_state=0, progress=False).fit_data(data)
    found = diagnose(est.fitted_, data, quick=True, draws=2, work=0.1)
    assert found.doubt is not None
    assert found.doubt.startswith(DOUBT[:35])
    assert found.verdicts[Question.LABELS] == found.verdicts[Question.ITEMS] == "cannot tell"
    known = {n: int(y[n]) for n in range(0, 240, 3)}
    trusted = diagnose(est.fitted_, data, trusted=known, quick=True, draws=2, work=0.1)
    assert trusted.doubt is None
    # Items and clusters say no more than the trusted labels do.
    assert trusted.items["probability"].mean() == pytest.approx(trusted.accuracy.estimate, abs=0.01)
    assert trusted.items["settled"].mean() < 0.05


def test_the_largest_seed_works_everywhere():
    """Seeds made from seeds must stay among those that K-means takes."""
    blobs = make_blobs(n=60, n_pairs=240, seed=0)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    est = VolMaxDCC(3, hidden=(8,), epochs=2, confusion="rates", volume=0.0, n_init=2, random_state=LARGEST_SEED)
    est.fit(*given)
    assert est.report_.start is not None  # made by Partitioner, whose seeds were too large
    est.diagnose(*given, quick=True, random_state=LARGEST_SEED)
    assert len(est.suggest_pairs(blobs.X, n=3, random_state=LARGEST_SEED)) == 3
    assert len(est.audit_answers(*given, random_state=LARGEST_SEED)) == 240
