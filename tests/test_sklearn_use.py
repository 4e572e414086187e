"""scikit-learn as people use it: y that splits with X, scores, pipelines and searches, names of columns and items, sparse X."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.multiclass import type_of_target

from pdcc import PairAnswers, PairData, PairDataError, VanillaDCC, VolMaxDCC
from pdcc.baselines import KMeans, PCKMeans
from pdcc.baselines.dcgmm import DCGMM
from pdcc.baselines.rates import two_rate_nll

N, K = 60, 3
QUICK = {
    "hidden": (16,), "epochs": 5, "lr": 0.02, "scale": None, "init": "random", "partition_weight": 0.0, "random_state": 0,
}  # fmt: skip
FIXED = QUICK | {"confusion": "none", "volume": 0.0}
IDS = [f"item {r}" for r in range(N)]
COLUMNS = ["length", "width", "weight"]


@pytest.fixture(scope="module")
def world():
    """Features (N, 3) on very different scales, so that their order matters, and answers of five annotators."""
    rng = np.random.default_rng(0)
    classes = np.arange(N) % K
    X = (3 * np.eye(3)[classes] + rng.normal(size=(N, 3))) * [1.0, 2.0, 0.5]
    pairs = rng.integers(N, size=(400, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    similar = (classes[pairs[:, 0]] == classes[pairs[:, 1]]) ^ (rng.random(len(pairs)) < 0.05)
    return X, pairs, similar, np.array(list("abcde"))[rng.integers(5, size=len(pairs))]


@pytest.fixture(scope="module")
def y(world):
    return PairAnswers.from_arrays(N, *world[1:])


@pytest.fixture(scope="module")
def frame(world):
    return pd.DataFrame(world[0], index=IDS, columns=COLUMNS)


@pytest.fixture(scope="module")
def fitted(frame, world):
    return VolMaxDCC(K, **FIXED).fit(frame, *world[1:])


def as_set(y, names):
    return {(names[i], names[j], s, a) for i, j, s, a in zip(y.i, y.j, y.similar, y.annotators, strict=True)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_keep_the_answers_among_them(data):
    """Whatever rows are taken, twice in a row, in any order: each answer kept is one that was given about these items."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    n = data.draw(st.integers(2, 12))
    i = np.arange(30) % n
    pairs = np.column_stack([i, (i + 1 + rng.integers(n - 1, size=30)) % n])
    y = PairAnswers.from_arrays(n, pairs, rng.random(30) < 0.5, list("abc") * 10)
    names = np.arange(100, 100 + n)
    whole = as_set(y, names)
    for _ in range(2):
        rows = np.array(data.draw(st.permutations(range(len(y))))[: data.draw(st.integers(0, len(y)))], dtype=int)
        names, y = names[rows], y[rows]
        assert len(y) == len(rows)
        assert as_set(y, names) == {answer for answer in whole if {answer[0], answer[1]} <= set(names)}
        assert set(y.annotator_names) == set(() if y.annotators is None else y.annotators)


def test_masks_slices_and_row_numbers_agree(y):
    mask = np.arange(N) % 3 == 0
    for rows in (mask, mask.tolist(), slice(0, N, 3), list(range(0, N, 3)), np.arange(-N, 0, 3)):
        part = y[rows]
        assert part.shape == (20,)
        np.testing.assert_array_equal(part.pairs, y[np.flatnonzero(mask)].pairs)
        assert 0 < part.n_answers < y.n_answers
    assert repr(y[[0]]) == "PairAnswers(n_items=1, n_answers=0, n_annotators=0)"
    assert y[:].self_pairs == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1, 4, 1], r"found 1 twice \(first at row 0"),
        ([N], "out of bounds"),
        (np.ones(N - 1, bool), "boolean"),
        (3, r"found 3\. .*y\[\[3, 5\]\]"),
        ("item 3", "rows: expected row numbers"),
    ],
)
def test_bad_rows_are_refused(y, rows, words):
    with pytest.raises(PairDataError, match=words):
        y[rows]


def test_scikit_learn_takes_it_for_a_y(world, y):
    assert indexable(world[0], y)[1] is y
    assert type_of_target(y) == "unknown"
    for rows in ([5, 2, 9], np.arange(N) < 20, slice(4, 30)):
        np.testing.assert_array_equal(_safe_indexing(y, rows).pairs, y[rows].pairs)
    X_train, X_test, y_train, y_test = train_test_split(world[0], y, random_state=0)
    assert (len(X_train), len(X_test)) == (len(y_train), len(y_test))
    with pytest.raises(TypeError, match="not iterable"):
        list(y)
    twin = pickle.loads(pickle.dumps(y))
    np.testing.assert_array_equal(twin.pairs, y.pairs)


def test_every_form_of_answers_is_the_same_fit(world, y, frame, fitted):
    X, pairs, similar, annotators = world
    table = pd.DataFrame({"i": pairs[:, 0], "j": pairs[:, 1], "similar": similar, "annotator": annotators})
    names = np.array(IDS, dtype=object)[pairs]
    by_name = table.assign(i=names[:, 0], j=names[:, 1])
    for form in (
        (X, y),
        (X, table),
        (X, PairAnswers.from_frame(N, table)),
        (X, PairAnswers.from_frame(frame.index, by_name)),
        (X, PairAnswers.from_arrays(IDS, names, similar, annotators)),
        (frame, by_name),
        (frame, names, similar, annotators),
        (frame, names.astype(str), similar, annotators),
        (frame, names.tolist(), similar, annotators),
        (frame, by_name[["i", "j"]], similar, annotators),
        (frame, pairs, similar, annotators),  # whole numbers are row numbers, whatever the index
    ):
        est = VolMaxDCC(K, **FIXED).fit(*form)
        np.testing.assert_array_equal(est.memberships_, fitted.memberships_)
        assert est.annotators_ == fitted.annotators_
    assert fitted.score(X_named := frame, by_name) == fitted.score(X_named, pairs, similar, annotators)
    np.testing.assert_array_equal(fitted.predict_pairs(frame, names), fitted.predict_pairs(frame, pairs))
    assert fitted.objective(frame, by_name) == fitted.objective(frame, y)
    assert PairData.from_arrays(frame, by_name).item_ids.tolist() == IDS


def test_row_numbers_stay_row_numbers_under_an_index_of_numbers(world):
    X, pairs, similar, _ = world
    shuffled = pd.DataFrame(X, index=np.arange(N)[::-1], columns=COLUMNS)
    data = PairData.from_arrays(shuffled, pairs, similar)
    np.testing.assert_array_equal(np.column_stack([data.i, data.j]), pairs)
    by_id = PairAnswers.from_arrays(shuffled.index, pairs, similar)  # here they are said to be ids
    np.testing.assert_array_equal(by_id.pairs, N - 1 - pairs)


BAD = [
    ((slice(None), [["item 0", "item 1"], ["item 2", "nobody"]], [1, 0]), "pairs", 1, "in the index of X, found 'nobody'"),
    ((slice(None), [[0, 1], [2, 3]]), "similar", None, "an answer for each pair, found none.*PairAnswers"),
    ((slice(None), "y", [1, 0]), "similar", None, "none beside a PairAnswers"),
    ((slice(None), "y", None, [1, 0]), "annotators", None, "none beside a PairAnswers"),
    ((slice(0, 50), "y"), "y", None, r"the 50 rows of X, found PairAnswers\(n_items=60"),
    ((slice(0, 1), "y[:1]"), "pairs", None, "at least one answer about two of the 1 items"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "argument", "row", "words"), BAD)
@pytest.mark.parametrize("est", [VolMaxDCC(2), KMeans(2)], ids=["VolMaxDCC", "KMeans"])
def test_bad_answers_say_argument_row_and_fix(est, given, argument, row, words, frame, y):
    rows, pairs, *rest = given
    pairs = {"y": y, "y[:1]": y[:1]}.get(pairs, pairs) if isinstance(pairs, str) else pairs
    with pytest.raises(PairDataError, match=words) as caught:
        clone(est).fit(frame.iloc[rows], pairs, *rest)
    assert (caught.value.argument, caught.value.row) == (argument, row)


@pytest.mark.parametrize(
    ("items", "argument", "words"),
    [(0, "items", "at least 1"), (["a", "b", "a"], "items", "'a' again"), (["a", None], "items", "none missing")],
)
def test_bad_items(items, argument, words):
    with pytest.raises(ValueError, match=rf"^{argument}: .*{words}"):
        PairAnswers.from_arrays(items, [["a", "b"]], [1])


def test_unnamed_strings_want_an_index(world):
    for X in (world[0], pd.DataFrame(world[0], columns=COLUMNS)):
        with pytest.raises(
            PairDataError, match=r"integers, row numbers.*DataFrame with them as its index.*--id-column"
        ):
            VolMaxDCC(K).fit(X, [["item 0", "item 1"], ["item 2", "item 3"]], [1, 0])
    twice = pd.DataFrame(world[0], index=["twin", "twin", *IDS[2:]])
    with pytest.raises(PairDataError, match=r"index of X: .*'twin' again \(first at row 1"):
        VolMaxDCC(K).fit(twice, [["item 4", "item 5"], ["item 2", "item 3"]], [1, 0])


def test_score_is_the_mean_log_likelihood(fitted, frame, world, y):
    _, pairs, similar, annotators = world
    p = fitted.predict_pairs(frame, pairs, annotators)
    expected = np.log(np.where(similar, p, 1 - p)).mean()
    assert fitted.score(frame, y) == pytest.approx(expected, rel=1e-9)
    assert fitted.score(frame, pairs, similar, annotators) == fitted.score(frame, y)
    assert fitted.score(frame, y) == pytest.approx(-fitted.objective(frame, y), rel=1e-9)  # its volume is 0
    assert fitted.score(frame, pairs, ~similar) < fitted.score(frame, pairs, similar) < 0
    one_kind = fitted.score(frame, pairs[similar], similar[similar])
    assert one_kind == pytest.approx(np.log(p[similar]).mean(), rel=1e-9)


def test_score_knows_the_annotators_by_name(frame, world, y):
    """In a fold without the first annotator the codes are others, and the confusions must not be."""
    est = VolMaxDCC(K, **QUICK | {"confusion": "per-annotator", "volume": 0.0}).fit(frame, y)
    some = np.random.default_rng(1).permutation(N)[:8]
    part = y[some]
    assert part.annotator_names != y.annotator_names
    p = est.predict_pairs(frame.iloc[some], part.pairs, part.annotators)
    np.testing.assert_array_equal(est.predict_pairs(frame.iloc[some], part), p)
    expected = np.log(np.where(part.similar, p, 1 - p)).mean()
    assert est.score(frame.iloc[some], part) == pytest.approx(expected, rel=1e-9)


def test_cross_validation_by_items(world, y):
    est, folds = VolMaxDCC(K, **FIXED), KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(est, world[0], y, cv=folds)
    by_hand = [
        clone(est).fit(world[0][train], y[train]).score(world[0][test], y[test])
        for train, test in folds.split(world[0])
    ]
    assert scores.tolist() == by_hand
    assert (scores > np.log(0.5)).all()
    done = cross_validate(est, world[0], y, cv=3, return_train_score=True)
    assert np.isfinite(done["train_score"]).all()
    assert cross_val_predict(est, world[0], y, cv=3).shape == (N,)


def test_search_through_a_pipeline(frame, y):
    """The setting that does not train at all must lose."""
    search = GridSearchCV(
        make_pipeline(StandardScaler(), VanillaDCC(K, **QUICK | {"epochs": 30})),
        {"vanilladcc__lr": [1e-9, 2e-2]},
        cv=3,
        error_score="raise",
    )
    search.fit(frame, y)
    assert search.best_params_ == {"vanilladcc__lr": 2e-2}
    assert search.score(frame, y) == search.best_estimator_.score(frame, y)
    assert search.transform(frame).shape == (N, K)
    assert search.predict(frame).shape == (N,)
    assert search.best_estimator_.get_feature_names_out().tolist() == [f"vanilladcc{k}" for k in range(K)]


def test_a_fold_without_answers_says_so(frame, y, fitted):
    """An error of ours; in cross-validation ``error_score`` decides what becomes of it: nan and a warning, by default."""
    lonely = PairAnswers.from_arrays(N, [[0, 1], [2, 3], [1, 2], [0, 3]], [1, 0, 1, 0])
    folds = [(np.arange(N), np.arange(30)), (np.arange(N), np.arange(30, N))]  # the second is about nothing
    est = VolMaxDCC(2, **FIXED)
    with pytest.raises(PairDataError, match=r"answer about two of the 30 items, found none.*fewer folds"):
        fitted.score(frame.iloc[30:], lonely[30:])
    with pytest.warns(UserWarning, match=r"(?s)Scoring failed.*two of the 30 items, found none.*fewer folds"):
        scores = cross_val_score(est, frame, lonely, cv=folds)
    assert np.isfinite(scores).tolist() == [True, False]
    with pytest.raises(PairDataError, match="found none"):
        cross_val_score(est, frame, lonely, cv=folds, error_score="raise")


def test_memberships_are_features(frame, y, fitted):
    np.testing.assert_array_equal(fitted.transform(frame), fitted.predict_proba(frame))
    est = VolMaxDCC(K, **FIXED)
    np.testing.assert_array_equal(est.fit_transform(frame, y), fitted.memberships_)
    np.testing.assert_array_equal(clone(est).fit_predict(frame, y), fitted.labels_)
    assert est.get_feature_names_out().tolist() == ["volmaxdcc0", "volmaxdcc1", "volmaxdcc2"]
    table = clone(est).set_output(transform="pandas").fit_transform(frame, y)
    assert table.index.tolist() == IDS
    assert table.columns.tolist() == est.get_feature_names_out().tolist()
    with pytest.raises(NotFittedError):
        VolMaxDCC(K).transform(frame)


@pytest.mark.parametrize("how", ["as fitted", "saved", "pickled"])
def test_columns_are_put_in_order(how, frame, world, fitted, tmp_path):
    X, pairs, similar, _ = world
    est = fitted
    if how == "saved":
        est.save(tmp_path / "run")
        est = VolMaxDCC.load(tmp_path / "run")
    elif how == "pickled":
        est = pickle.loads(pickle.dumps(est))
    assert est.feature_names_in_.tolist() == COLUMNS
    turned = frame[COLUMNS[::-1]]
    np.testing.assert_array_equal(est.predict_proba(turned), fitted.memberships_)
    np.testing.assert_array_equal(est.predict_pairs(turned, pairs), est.predict_pairs(frame, pairs))
    assert est.score(turned, pairs, similar) == est.score(frame, pairs, similar)
    assert not np.array_equal(  # the order matters: this is what would silently have come out
        est.fitted_.memberships(turned.to_numpy().astype(np.float32)), fitted.memberships_
    )
    for bad, words in (
        (frame.rename(columns={"width": "depth"}), "found no 'width', and besides 'depth'"),
        (frame[["length", "weight"]], "the 3 columns of the fit, in any order, found no 'width'"),
        (frame.assign(price=1.0), "found besides 'price'.*--id-column"),
        (frame[["weight", "length", "length", "width"]], "'length' more than once"),
    ):
        with pytest.raises(PairDataError, match=words):
            est.predict(bad)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):  # scikit-learn's own
        np.testing.assert_array_equal(est.predict_proba(X), fitted.memberships_)


def test_items_with_known_classes_are_put_in_order_too(frame, world):
    _, pairs, similar, _ = world
    classes = np.arange(N) % K
    setting = {"hidden": (8,), "epochs": 2, "lr": 0.02, "random_state": 0, "volumes": (0.0, 1e-2)}
    one, two = (
        VolMaxDCC.paper(K, oracle=(known, classes), **setting).fit(frame, pairs, similar)
        for known in (frame, frame[COLUMNS[::-1]])
    )
    assert one.oracle_scores_ == two.oracle_scores_
    assert one.feature_names_in_.tolist() == COLUMNS
    with pytest.raises(PairDataError, match="found no 'width'"):
        VolMaxDCC.paper(K, oracle=(frame[["length"]], classes), **setting).fit(frame, pairs, similar)


def test_names_are_those_of_the_last_fit(frame, world):
    X, pairs, similar, _ = world
    est = KMeans(K, random_state=0).fit(frame, pairs, similar)
    assert est.feature_names_in_.tolist() == COLUMNS
    np.testing.assert_array_equal(est.predict(frame[COLUMNS[::-1]]), est.predict(frame))
    assert not hasattr(est.fit(X, pairs, similar), "feature_names_in_")
    assert not hasattr(est.fit(pd.DataFrame(X), pairs, similar), "feature_names_in_")  # numbered is not named
    with pytest.raises(
        PairDataError, match=r"X: expected columns that are all named by strings.*0 of type int beside 'b'"
    ):
        est.fit(frame.set_axis([0, "b", "c"], axis=1), pairs, similar)
    with pytest.raises(PairDataError, match="'a' more than once"):
        est.fit(frame.set_axis(["a", "a", "b"], axis=1), pairs, similar)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
@pytest.mark.parametrize(
    "est", [VolMaxDCC(K, **FIXED), PCKMeans(K, n_init=1, random_state=0)], ids=["ours", "PCKMeans"]
)
def test_sparse_features_are_the_dense_ones(form, est, world, y):
    X = np.where(np.abs(world[0]) < 0.5, 0.0, world[0]).astype(np.float32)
    full = clone(est).fit(X, y)
    few = clone(est).fit(form(X), y)
    np.testing.assert_array_equal(few.labels_, full.labels_)
    np.testing.assert_array_equal(few.predict(form(X)), full.predict(X))
    assert few.score(form(X), y) == full.score(X, y)


def test_texts_through_a_pipeline(y):
    words = ["apple pear plum cherry", "car bus train ship", "red green blue black"]
    texts = [" ".join(np.random.default_rng(r).permutation(words[r % K].split())[:3]) for r in range(N)]
    plain = make_pipeline(TfidfVectorizer(), VolMaxDCC(K, **FIXED))
    assert np.isfinite(cross_val_score(plain, texts, y, cv=3, error_score="raise")).all()
    reduced = make_pipeline(TfidfVectorizer(), TruncatedSVD(4, random_state=0), VolMaxDCC(K, **FIXED))
    assert reduced.fit(texts, y).predict(texts[:2]).shape == (2,)


def test_baselines_score_by_two_rates(frame, world, y):
    """The rates are those of the fitted answers under the rule that new items go by, so that both mean the same."""
    train, test = np.arange(40), np.arange(40, N)
    for est in (PCKMeans(K, n_init=1, random_state=0), KMeans(K, random_state=0)):
        fitted = est.fit(frame.iloc[train], y[train])
        F = np.eye(K)[fitted.predict(frame)]
        parts = [PairData.from_arrays(frame, y_part) for y_part in (spread(y[train], 0), spread(y[test], 40))]
        assert fitted.score(frame.iloc[test], y[test]) == pytest.approx(-two_rate_nll(F, *parts).mean(), rel=1e-9)
    assert cross_val_score(KMeans(K, random_state=0), frame, y, cv=3, error_score="raise").shape == (3,)


def spread(y, first):
    """Answers about rows first, first + 1, ... of all N."""
    return PairAnswers.from_arrays(N, y.pairs + first, y.similar)


def test_deep_baselines_are_transformers_too(frame, y):
    est = DCGMM(K, hidden=(8,), latent=2, pretrain_epochs=1, epochs=1, random_state=0, device="cpu")
    F = est.fit_transform(frame, y)
    np.testing.assert_array_equal(F, est.predict_proba(frame[COLUMNS[::-1]]))
    assert est.get_feature_names_out().tolist() == ["dcgmm0", "dcgmm1", "dcgmm2"]
    assert est.score(frame, y) < 0


def test_images_keep_working_with_a_network(world, y):
    """Items of more than two dimensions have no columns; a y is a y all the same."""
    import torch

    X = world[0].reshape(N, 1, 3).astype(np.float32)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, K))
    est = VolMaxDCC(K, network=net, **FIXED).fit(X, y)
    assert est.score(X, y) == pytest.approx(-est.objective(X, *world[1:]), rel=1e-9)
    identity = make_pipeline(FunctionTransformer(), VolMaxDCC(K, **FIXED))
    assert identity.fit(world[0], y).score(world[0], y) < 0
