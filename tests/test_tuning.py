"""Volume, dropout and number of clusters, chosen from answers alone."""

import numpy as np
import pytest
from conftest import make_blobs

from pdcc import (
    PairData,
    Selection,
    VanillaDCC,
    VolMaxDCC,
    recipe,
    select_dropout,
    select_n_clusters,
    select_volume,
    tuning,
)
from pdcc.annotators import worker_pairs
from pdcc.auto.initialise import make_start

SMALL = {"hidden": (16,), "dropout": 0.0, "init": "kmeans", "scale": "standard", "partition_weight": 0.0, "epochs": 8}


def estimator(n_clusters=3, **changes):
    return VolMaxDCC(n_clusters, **SMALL | {"confusion": "stochastic", "volume": 0.0} | changes)


def compared(nll, stability, groups=None):
    """Held-out nats given by their means: the same answers, shifted, with a little noise of each value's own."""
    rng = np.random.default_rng(0)
    shared = rng.exponential(size=400)
    rows = np.array([shared + m + 0.1 * rng.normal(size=400) for m in nll])
    rows += np.array(nll)[:, None] + shared.mean() - rows.mean(axis=1, keepdims=True)
    return tuning._Compared([0.0, 1e-2, 1e-1], rows, np.array(stability), groups, "items and pairs")


@pytest.mark.parametrize(
    ("nll", "stability", "value"),
    [
        ((0.300, 0.301, 0.302), (0.9, 0.9, 0.9), 1e-1),  # all alike: the largest
        ((0.300, 0.301, 0.400), (0.9, 0.9, 0.9), 1e-2),  # the largest predicts worse
        ((0.300, 0.301, 0.302), (0.9, 0.9, 0.5), 1e-2),  # the largest is luck
        ((0.200, 0.301, 0.302), (0.5, 0.9, 0.9), 0.0),  # stability cannot excuse bad predictions
    ],
)
def test_the_largest_volume_that_costs_nothing(nll, stability, value):
    found = tuning._judge(compared(nll, stability), "volume", prefer=max, words="the largest volume")
    assert found.value == value
    assert found.table["chosen"].tolist() == [v == value for v in (0.0, 1e-2, 1e-1)]
    assert f"{value:g}" in found.reason
    assert "try larger" not in found.reason  # none of them is both the best and the last


def test_a_best_value_at_the_end_asks_for_more():
    found = tuning._judge(compared((0.4, 0.35, 0.3), (0.9, 0.9, 0.9)), "volume", prefer=max, words="the largest volume")
    assert found.value == 0.1
    assert "Chose volume 0.1 (the best)" in found.reason
    assert "try larger" in found.reason


def test_answers_of_few_people_are_worth_less():
    """The same gap decides between 400 independent answers, and not between two people of 200 each."""
    nll = (0.300, 0.302, 0.315)
    alone = tuning._judge(compared(nll, (1, 1, 1)), "volume", prefer=max, words="")
    people = np.arange(400) // 200
    found = compared(nll, (1, 1, 1), people)
    found.nll[2] += np.where(people == 0, 0.1, -0.1)  # one of them likes the largest volume, one does not
    assert alone.value == 1e-2
    assert tuning._judge(found, "volume", prefer=max, words="").value == 1e-1


def test_number_of_clusters_is_found(tmp_path):
    blobs = make_blobs(n=240, n_pairs=1500, flip=0.1, seed=2, n_clusters=4)
    found = select_n_clusters(
        blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=estimator(), candidates=(2, 4, 6), n_restarts=1
    )
    assert isinstance(found, Selection)
    assert found.value == 4
    assert found.held_out == "items and pairs"
    found.plot().figure.savefig(tmp_path / "selection.png")
    assert (tmp_path / "selection.png").stat().st_size > 5000


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
    train, test = data.split(0.2, 0, by="items")
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
    with pytest.raises(ValueError, match="expected a VolMaxDCC, whose volume can be chosen, found VanillaDCC"):
        select_volume(blobs.X, blobs.answers.pairs, blobs.answers.similar, estimator=VanillaDCC(3))


def test_a_start_is_made_once_for_all_volumes_and_changes_nothing(monkeypatch):
    blobs = make_blobs(n=120, n_pairs=400, flip=0.1, seed=5)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    alone = estimator(init="pairs", random_state=0, epochs=2)
    data = PairData.from_arrays(*given)
    again = estimator(init="pairs", random_state=0, epochs=2).fit_data(data, start=alone.start_of(data))
    np.testing.assert_array_equal(alone.fit(*given).memberships_, again.memberships_)
    made = []
    monkeypatch.setattr(recipe, "make_start", lambda *a, **k: made.append(k["seed"]) or make_start(*a, **k))
    select_volume(*given, estimator=alone, volumes=(0.0, 1e-3, 1e-2), n_restarts=2, random_state=7)
    assert made == [7, 8]
    made.clear()
    select_n_clusters(*given, estimator=alone, candidates=(2, 3), n_restarts=1, random_state=7)
    assert made == [7, 7]


def test_answers_about_one_new_item_count_as_one():
    train = PairData.from_arrays(np.eye(6), [[0, 1], [1, 2], [2, 3]], [1, 0, 1])
    test = PairData.from_arrays(np.eye(6), [[4, 0], [1, 4], [5, 2], [0, 2], [1, 3]], [1, 0, 1, 0, 1])
    groups = tuning._by_new_item(train, test)
    assert groups[0] == groups[1]
    assert len(set(groups.tolist())) == 4
