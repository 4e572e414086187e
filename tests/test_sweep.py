"""Volume, dropout and number of clusters, chosen from answers alone."""

import numpy as np
import pytest
from helpers import make_blobs
from sklearn.base import BaseEstimator

from pdcc import PairData, VanillaDCC, VolMaxDCC, plots, select_dropout, select_n_clusters, select_volume
from pdcc.annotators import draw_pairs, worker_pairs
from pdcc.data.splits import split
from pdcc.select.score import standard_error
from pdcc.select.search import prepare
from pdcc.select.sweep import HELD_OUT

SMALL = {"hidden": (16,), "dropout": 0.0, "init": "kmeans", "scale": "standard", "partition_weight": 0.0, "epochs": 8}


def estimator(n_clusters=3, **changes):
    return VolMaxDCC(n_clusters, **SMALL | {"confusion": "stochastic", "volume": 0.0} | changes)


VOLUMES = (0.0, 1e-2, 1e-1)
Y = np.arange(300) % 3
PAIRS = draw_pairs(300, 2000, np.random.default_rng(0))
SIMILAR = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]


def losses(volume, n, mean):
    """Nats of n held-out answers: the same at every volume, a little noise of its own, and ``mean`` above 1 on average."""
    own = np.random.default_rng(VOLUMES.index(volume) + 1).normal(scale=0.1, size=n)
    found = np.random.default_rng(0).uniform(0.5, 1.5, size=n) + own
    return found + 1 + mean - found.mean()


class Told(BaseEstimator):
    """An estimator that predicts as it is told: at the volume v with mean loss ``means[v]``.

    shaken[v]: share of the labels that every other restart draws again. swayed: at the largest volume one of two people is predicted
    better and the other worse. by_item: the same of items that were not fitted.
    """

    def __init__(
        self, volume=0.0, random_state=0, progress=False, means=None, shaken=None, swayed=False, by_item=False
    ):
        self.volume, self.random_state, self.progress = volume, random_state, progress
        self.means, self.shaken, self.swayed, self.by_item = means, shaken, swayed, by_item

    def prepare(self, data):
        return None

    def fit_data(self, data, *, prepared=None):
        rng = np.random.default_rng(0)
        again = (rng.random(len(Y)) < self.shaken[self.volume]) & bool(self.random_state % 2)
        self.labels_ = np.where(again, rng.integers(3, size=len(Y)), Y)
        self.known_ = np.union1d(data.i, data.j)
        return self

    def predict_pairs(self, X, pairs, annotators=None):
        loss = losses(self.volume, len(pairs), self.means[self.volume])
        if self.volume == VOLUMES[-1] and self.swayed:
            loss += np.where(annotators == min(annotators), 0.1, -0.1)
        if self.volume == VOLUMES[-1] and self.by_item:
            loss += item_effect(pairs, self.known_)
        return np.where(Y[pairs[:, 0]] == Y[pairs[:, 1]], np.exp(-loss), 1 - np.exp(-loss))


def item_effect(pairs, known):
    """Answers about one new item are all predicted better, or all worse."""
    new = np.where(~np.isin(pairs[:, 0], known), pairs[:, 0], np.where(~np.isin(pairs[:, 1], known), pairs[:, 1], -1))
    return np.where(new < 0, 0.0, np.where(new % 2 == 0, 0.4, -0.4))


def compare(means, shaken=(0.0, 0.0, 0.0), people=None, **options):
    told = Told(means=dict(zip(VOLUMES, means, strict=True)), shaken=dict(zip(VOLUMES, shaken, strict=True)), **options)
    return select_volume(Y[:, None], PAIRS, SIMILAR, people, estimator=told, volumes=VOLUMES)


@pytest.mark.parametrize(
    ("means", "shaken", "value"),
    [
        ((0.300, 0.301, 0.302), (0.0, 0.0, 0.0), 1e-1),  # all alike: the largest
        ((0.300, 0.301, 0.400), (0.0, 0.0, 0.0), 1e-2),  # the largest predicts worse
        ((0.300, 0.301, 0.302), (0.0, 0.0, 0.3), 1e-2),  # the largest is luck
        ((0.200, 0.301, 0.302), (0.3, 0.0, 0.0), 0.0),  # stability cannot excuse bad predictions
    ],
)
def test_the_largest_volume_that_costs_nothing(means, shaken, value):
    found = compare(means, shaken)
    assert found.value == value
    assert found.table["chosen"].tolist() == [v == value for v in VOLUMES]
    np.testing.assert_allclose(found.table["behind_best"], np.array(means) - min(means), atol=1e-9)
    assert ((found.table["stability"] < 0.9) == (np.array(shaken) > 0)).all()
    assert f"volume {value:g}" in found.reason
    assert "try larger" not in found.reason  # none of them is both the best and the last


def test_a_best_value_at_the_end_asks_for_more():
    found = compare((0.4, 0.35, 0.3))
    assert found.value == 0.1
    assert "try larger" in found.reason


def test_answers_of_few_people_are_worth_less():
    """The same gap decides between 400 independent answers, and not between two people of 200 each who differ."""
    means, people = (0.300, 0.302, 0.315), np.arange(len(PAIRS)) // 200
    alone, apart = compare(means), compare(means, people=people, swayed=True)
    assert (alone.held_out, apart.held_out) == ("items and pairs", "annotators")
    assert alone.value == 1e-2
    assert apart.value == 1e-1


def test_answers_about_one_new_item_count_as_one():
    found = compare((0.3, 0.31, 0.32), by_item=True)
    data = PairData.from_arrays(Y[:, None], PAIRS, SIMILAR)
    kept = split(data, HELD_OUT, 0, by="items")
    train, test = kept.train(data), kept.test(data)
    pairs = np.column_stack([test.i, test.j])
    known = np.union1d(train.i, train.j)
    difference = losses(0.1, len(test), 0.32) + item_effect(pairs, known) - losses(0.0, len(test), 0.3)
    together, alone = standard_error(difference, test), difference.std() / np.sqrt(len(test))
    assert found.table["standard_error"].iloc[2] == pytest.approx(together)
    assert together > 1.5 * alone


def test_number_of_clusters_is_found(tmp_path):
    blobs = make_blobs(n=240, n_pairs=1500, flip=0.1, seed=2, n_clusters=4)
    found = select_n_clusters(
        blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=estimator(), candidates=(2, 4, 6), n_restarts=1
    )
    assert found.parameter == "n_clusters"
    assert found.value == 4
    assert found.held_out == "items and pairs"
    ax = plots.plot_selection(found)
    ax.figure.savefig(tmp_path / "selection.png")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.table["held_out_nll"])


def test_dropout_that_drowns_the_answers_is_not_chosen():
    """Of four hidden units next to none survive dropout .95: it predicts held-out answers worse, and is left out."""
    blobs = make_blobs(n=240, n_pairs=1500, flip=0.1, seed=2)
    found = select_dropout(
        blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=estimator(hidden=(4,)), dropouts=(0.95, 0.0), n_restarts=1
    )  # fmt: skip
    assert found.parameter == "dropout"
    assert found.value == 0.0
    with pytest.raises(ValueError, match="dropouts"):
        select_dropout(blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=estimator(), dropouts=(0.0, 1.0))


def test_people_are_held_out_where_there_are_ten():
    blobs = make_blobs(n=120, n_pairs=10, seed=3)
    rng = np.random.default_rng(0)
    given = np.full((120, 12), -1)
    for worker in range(12):
        items = rng.choice(120, 25, replace=False)
        given[items, worker] = np.where(rng.random(25) < 0.2, rng.integers(3, size=25), blobs.y[items])
    a = worker_pairs(blobs.y, given, 1200, rng)
    names = np.array([f"w{r}" for r in a.annotators])
    found = select_volume(
        blobs.X, a.pairs, a.similar, names, estimator=estimator(epochs=3), volumes=(0.0, 1e-2), n_restarts=1
    )
    assert found.held_out == "annotators"
    again = select_volume(
        blobs.X, a.pairs, a.similar, names, estimator=estimator(epochs=3), volumes=(0.0, 1e-2), n_restarts=1
    )
    assert found.table.equals(again.table)
    assert found.table["stability"].isna().all()  # one restart has nothing to agree with


def test_held_out_items_are_new():
    blobs = make_blobs(n=300, n_pairs=2000)
    data = PairData.from_arrays(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    found = split(data, 0.2, 0, by="items")
    train, test = found.train(data), found.test(data)
    assert len(train) + len(test) == len(data)
    # Binomial: half of 0.2 by items, half by single pairs, each within four standard errors.
    known = np.union1d(train.i, train.j)
    new = ~np.isin(test.i, known) | ~np.isin(test.j, known)
    error = np.sqrt(0.1 * 0.9 / len(data))
    assert abs(new.sum() / len(data) - 0.1) < 8 * error  # items, not pairs, are drawn: their degrees vary
    assert abs((~new).sum() / len(data) - 0.1) < 2 / len(data)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"volumes": (-1.0, 0.0)}, "volumes"), ({"volumes": (0.0,)}, "at least two"), ({"n_restarts": 0}, "n_restarts")],
)
def test_bad_requests(changes, word, blobs):
    with pytest.raises(ValueError, match=word):
        select_volume(blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=estimator(), **changes)


def test_what_has_no_volume_cannot_have_it_chosen(blobs):
    with pytest.raises(ValueError, match=r"^estimator: expected .*found VanillaDCC"):
        select_volume(blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=VanillaDCC(3))


def test_a_start_is_made_once_for_all_volumes_and_changes_nothing(monkeypatch):
    blobs = make_blobs(n=120, n_pairs=400, flip=0.1, seed=5)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    alone = estimator(init="pairs", random_state=0, epochs=2)
    data = PairData.from_arrays(*given)
    again = estimator(init="pairs", random_state=0, epochs=2).fit_data(data, prepared=alone.prepare(data))
    np.testing.assert_array_equal(alone.fit(*given).memberships_, again.memberships_)
    made = []
    for module in ("pdcc.base", "pdcc.select.search"):
        monkeypatch.setattr(
            f"{module}.prepare",
            lambda data, config, *a, **o: made.append(config.seed) or prepare(data, config, *a, **o),
        )
    select_volume(*given, estimator=alone, volumes=(0.0, 1e-3, 1e-2), n_restarts=2, random_state=7)
    assert made == [7, 8]
    made.clear()
    select_n_clusters(*given, estimator=alone, candidates=(2, 3), n_restarts=1, random_state=7)
    assert made == [7, 7]
