"""More answers later: an earlier fit goes on, keeps its choices, its cluster numbers and what it held out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs, pdcc

from pdcc import PairAnswers, PairData, VolMaxDCC
from pdcc.data.joining import UNNAMED, joined
from pdcc.data.splits import HeldOut, Split, extended, hold_out
from pdcc.errors import PairDataError
from pdcc.inference import svi
from pdcc.select import refit
from pdcc.select.refit import _put_back
from pdcc.storage import run as runs
from pdcc.training import Trial

FEW = {"scale": "standard", "hidden": (16,), "epochs": 3, "random_state": 0}
N_OLD, M_OLD = 60, 200


@pytest.fixture(scope="module")
def blobs():
    """Seventy items, the last ten of them new: 200 answers about the others, then 200 about all."""
    made = make_blobs(n=70, n_pairs=600, flip=0.1, seed=3)
    pairs, similar = made.answers.pairs, np.asarray(made.answers.similar)
    old = np.flatnonzero((pairs < N_OLD).all(axis=1))[:M_OLD]
    new = np.setdiff1d(np.arange(len(pairs)), old)[:200]
    order = np.r_[old, new]
    return made.X, pairs[order], similar[order], np.where(np.arange(400) % 3 == 0, "ann", "bob")


def fitted(blobs, confusion="pooled", volume=0.0, **options):
    X, pairs, similar, who = blobs
    est = VolMaxDCC(3, confusion=confusion, volume=volume, **FEW | options)
    return est.fit(X[:N_OLD], pairs[:M_OLD], similar[:M_OLD], who[:M_OLD])


@pytest.mark.parametrize("confusion", ["none", "pooled", "sigmoid", "per-annotator"])
def test_it_sets_out_from_the_earlier_fit(confusion, blobs):
    """What the earlier fit says of all held-out answers is what training finds before its first step, also of new annotators."""
    X, pairs, similar, who = blobs
    who = np.where(np.arange(400) > 300, "aaa", who)  # sorts first: numbers of annotators change
    est = fitted((X, pairs, similar, who), confusion)
    n_before, seen = est.report_.epochs, est.fitted_.split.held.copy()
    data = PairData.from_arrays(X, pairs, similar, who)
    nll = est._nll(data)
    labels = est.predict(X)
    est.refit(X, pairs, similar, who)
    held = est.fitted_.split.held
    np.testing.assert_array_equal(held[:M_OLD], seen)
    assert held[M_OLD:].any()
    found = est.changes_
    assert found.held_out_before == pytest.approx(nll[held].mean(), abs=1e-5)
    assert found.held_out_after == pytest.approx(est._nll(data)[held].mean(), abs=1e-5)
    assert found.held_out_after <= found.held_out_before + 1e-6
    np.testing.assert_array_equal(found.before, labels)
    np.testing.assert_array_equal(found.after, est.labels_)
    assert (found.n_before, found.n_added, found.n_new_items) == (200, 200, 10)
    assert est.report_.epochs >= n_before
    assert est.report_.chosen.confusion == confusion
    assert "aaa" in est.annotators_


def test_more_answers_move_labels_and_the_moves_are_said(blobs):
    """A fit to answers that are half wrong, then many that are right."""
    X, pairs, similar, _ = blobs
    rng = np.random.default_rng(0)
    wrong = similar[:M_OLD] ^ (rng.random(M_OLD) < 0.5)
    est = VolMaxDCC(3, confusion="rates", volume=0.0, init="random", **FEW).fit(X[:N_OLD], pairs[:M_OLD], wrong)
    est.set_params(epochs=40)
    est.refit(X, pairs, np.r_[wrong, similar[M_OLD:]])
    moved = est.changes_.moved
    assert len(moved)
    assert f"{len(moved)} labels moved: " in str(est.changes_)
    assert "200 answers were added to 200, about 70 items, 10 of them new." in str(est.changes_)
    assert est.changes_.held_out_after < est.changes_.held_out_before
    fresh = VolMaxDCC(3, confusion="rates", volume=0.0, **FEW).fit(X, pairs, similar)
    assert fresh.changes_ is None


@pytest.mark.parametrize("confusion", ["pooled", "sigmoid", "per-annotator"])
def test_clusters_that_changed_places_are_put_back(confusion, blobs):
    """All numbers of a model in another order: memberships follow, and what is predicted of answers stays."""
    X, pairs, _, who = blobs
    est = fitted(blobs, confusion, partition_weight=0.5, init="kmeans")
    F, p = est.predict_proba(X), est.predict_pairs(X, pairs, who)
    order = np.array([2, 0, 1])
    assert _put_back(Trial(est.model_, est.guide_, None, None), order)
    np.testing.assert_allclose(est.predict_proba(X), F[:, order], atol=1e-6)
    np.testing.assert_allclose(est.predict_pairs(X, pairs, who), p, atol=1e-5)


def test_numbers_stay_even_if_training_swaps_clusters(blobs, monkeypatch):
    X, pairs, similar, who = blobs
    est = fitted(blobs)
    before = est.predict(X)
    train = refit.Trainer.train

    def swapping(*args, **options):
        trial = train(*args, **options)
        assert _put_back(trial, np.array([1, 2, 0]))
        return trial

    monkeypatch.setattr(refit.Trainer, "train", swapping)
    est.refit(X, pairs, similar, who)
    assert (est.predict(X) == before).mean() > 0.9
    assert not est.changes_.renumbered


def test_a_run_that_went_on_is_saved_and_loaded(blobs, tmp_path):
    X, pairs, similar, who = blobs
    est = fitted(blobs, "per-annotator").refit(X, pairs, similar, who)
    est.save(tmp_path / "run")
    again = VolMaxDCC.load(tmp_path / "run")
    np.testing.assert_allclose(again.predict_pairs(X, pairs, who), est.predict_pairs(X, pairs, who), atol=1e-6)
    assert again.report_ == est.report_


def test_what_does_not_go_on_is_refused(blobs):
    X, pairs, similar, who = blobs
    with pytest.raises(ValueError, match="not fitted"):
        VolMaxDCC(3).refit(X, pairs, similar)
    est = fitted(blobs)
    for arguments, match in [
        ((X[:, :3], pairs, similar, who), "4 features|4 columns|expected 4"),
        ((X[:50], pairs[(pairs < 50).all(1)], similar[(pairs < 50).all(1)]), "X: expected the 60 items.*found 50"),
        ((X[::-1], pairs, similar, who), r"X: expected the 60 items of the earlier fit first.*\(first at row"),
        ((X, pairs[::-1], similar[::-1], who), "pairs: expected the 200 answers of the earlier fit first"),
        ((X, pairs[:M_OLD], similar[:M_OLD]), "more answers than the 200"),
        ((X, np.r_[pairs, [[0, 70]]], np.r_[similar, 1]), "row numbers from 0 to 69"),
    ]:
        with pytest.raises(ValueError, match=match):
            est.refit(*arguments)
    est.set_params(n_clusters=4)
    with pytest.raises(PairDataError, match="n_clusters: expected the 3 of the earlier fit, or auto, found 4"):
        est.refit(X, pairs, similar, who)


def test_what_was_held_out_stays_so_and_what_was_seen_is_not(blobs):
    X, pairs, similar, _ = blobs
    who = np.array([f"w{k % 12}" for k in range(400)])
    data = PairData.from_arrays(X, pairs, similar, who)
    old = data.subset(np.arange(M_OLD))
    for named in (True, False):
        part, whole = (d if named else replace(d, annotator=None, annotator_names=()) for d in (old, data))
        before = hold_out(part, 0.2, 0)
        after = extended(before, whole, 0.2, 0)
        assert after.by == (HeldOut.ANNOTATORS if named else HeldOut.PAIRS)
        np.testing.assert_array_equal(after.held[:M_OLD], before.held)
        group = whole.annotator if named else whole.asked()
        assert not set(group[:M_OLD][~before.held]) & set(group[after.held])
        assert not set(group[:M_OLD][before.held]) & set(group[~after.held])
    assert 0.1 < after.held[M_OLD:].mean() < 0.3  # a fifth of the new pairs
    nothing = Split(np.zeros(M_OLD, dtype=bool), HeldOut.NOTHING)
    assert extended(nothing, data, 0.0, 0).by is HeldOut.NOTHING
    assert extended(nothing, data, 0.2, 0).held.any()


def test_answers_are_joined():
    X = np.arange(8.0).reshape(4, 2)
    old = PairData.from_arrays(X, [(0, 1), (1, 2), (1, 2)], [1, 0, 0], [1, 2, 2])

    def more(pairs, similar, who=None, **options):
        return PairAnswers.from_arrays(4, pairs, similar, who, **options)

    # New ones, by annotators of whom one is written as text here.
    found = joined(old, more([(2, 3), (0, 1)], [0, 0], ["2", "llm:x"]))
    assert (found.n_known, found.n_repeated, len(found.data)) == (0, 0, 5)
    assert [found.data.annotator_names[k] for k in found.data.annotator] == [1, 2, 2, 2, "llm:x"]
    assert found.data.subset(np.arange(3)).fingerprint() == old.fingerprint()
    # Everything so far again, either way round, and one more.
    found = joined(old, more([(2, 1), (2, 3), (2, 1), (1, 0)], [0, 1, 0, 1], [2, 1, 2, 1]))
    assert (found.n_known, found.n_repeated) == (3, 0)
    assert (found.data.i.tolist(), found.data.j.tolist()) == ([0, 1, 1, 2], [1, 2, 2, 3])
    # A part of it again: nobody can tell why, so it is said and stays.
    found = joined(old, more([(0, 1), (2, 3)], [1, 1], [1, 1]))
    assert (found.n_known, found.n_repeated, len(found.data)) == (0, 1, 5)
    # Names on one side; degrees and weights on the other.
    found = joined(old, more([(2, 3)], [0.25], soft=True, weights=[2.0]))
    assert found.data.annotator_names == (1, 2, UNNAMED)
    assert found.data.soft.tolist() == [1, 0, 0, 0.25]
    assert found.data.weight.tolist() == [1, 1, 1, 2]
    assert found.data.subset(np.arange(3)).plain().fingerprint() == old.fingerprint()


QUICK = ("--epochs", "3", "--confusion", "pooled", "--volume", "0", "--init", "kmeans", "--scale", "standard")


@pytest.fixture(scope="module")
def made(blobs, tmp_path_factory):
    """Files of a run of sixty named items, and of what comes later."""
    X, pairs, similar, who = blobs
    place = tmp_path_factory.mktemp("going-on")
    names = np.array([f"n{k}" for k in range(70)])
    table = pd.DataFrame(X, columns=list("abcd")).assign(id=names)
    answers = pd.DataFrame(
        {"i": names[pairs[:, 0]], "j": names[pairs[:, 1]], "similar": similar.astype(int), "annotator": who}
    )
    unsure = answers[:1].assign(similar="unsure")
    table[:N_OLD].to_csv(place / "features.csv", index=False)
    table[["d", "id", "c", "b", "a"]].to_csv(place / "grown.csv", index=False)
    pd.concat([answers[:M_OLD], unsure]).to_csv(place / "pairs.csv", index=False)
    among = (pairs[M_OLD:] < N_OLD).all(axis=1)
    pd.concat([answers[M_OLD:][among], unsure]).to_csv(place / "more.csv", index=False)
    answers[M_OLD:][~among].to_csv(place / "about-new.csv", index=False)
    pd.concat([answers[:M_OLD], answers[M_OLD:][among]]).to_csv(place / "everything.csv", index=False)
    assert (
        pdcc(
            "-q",
            "fit",
            place / "features.csv",
            place / "pairs.csv",
            "-k",
            3,
            "-o",
            place / "run",
            "--id-column",
            "id",
            *QUICK,
        )
        == 0
    )
    return place


def test_the_command_goes_on(made, capsys, tmp_path):
    before = (made / "run" / "run.json").read_bytes()
    n_added = len(pd.read_csv(made / "more.csv")) - 1
    words = ["fit", "--from", made / "run", "--add", made / "more.csv", "-o", tmp_path / "run2"]
    assert pdcc(*words, "--accuracy") == 0
    said = capsys.readouterr()
    assert f"{n_added} answers were added to 200, about 60 items." in said.out
    assert " labels moved" in said.out
    assert "Labels that are right, by a quick estimate: " in said.out
    assert " before, " in said.out or "the same labels, now judged by more answers" in said.out
    assert "K-means; confusion pooled, volume 0," in said.out
    assert (made / "run" / "run.json").read_bytes() == before
    data = runs.read_data(tmp_path / "run2")
    assert len(data) == 200 + n_added
    assert VolMaxDCC.load(tmp_path / "run2").fitted_.holds(data)
    assert len(runs.reading_of(tmp_path / "run2")["unsure"]) == 2
    # The same again is done already; other answers are other work.
    assert pdcc(*words, "--resume") == 0
    assert "had already finished" in capsys.readouterr().out
    other = [made / "everything.csv" if w == made / "more.csv" else w for w in words]
    assert pdcc(*other, "--resume") == 2
    assert "cannot resume" in capsys.readouterr().err
    # An export of everything holds the earlier answers too.
    assert pdcc(*other, "--overwrite") == 0
    said = capsys.readouterr()
    assert f"{n_added} answers were added to 200" in said.out
    assert "holds the 200 answers so far too; they count once" in said.err
    # And a run that went on goes on: to more items, whose columns are in another order.
    words = [
        "fit",
        made / "grown.csv",
        "--from",
        tmp_path / "run2",
        "--add",
        made / "about-new.csv",
        "-o",
        tmp_path / "run3",
    ]
    assert pdcc(*words, "-k", 3) == 0
    assert "about 70 items, 10 of them new." in capsys.readouterr().out
    assert len(VolMaxDCC.load(tmp_path / "run3").labels_) == 70


def test_interrupted_it_resumes_to_the_same_bits(made, capsys, tmp_path, monkeypatch):
    words = ["-q", "fit", "--from", made / "run", "--add", made / "more.csv", "--epochs", 4]
    assert pdcc(*words, "-o", tmp_path / "whole") == 0
    close = svi.close_epoch
    monkeypatch.setattr(svi, "CHECKPOINT_SECONDS", 0.0)

    def interrupted(run, *rest):
        close(run, *rest)
        if run.epoch == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(svi, "close_epoch", interrupted)
        assert pdcc(*words, "-o", tmp_path / "cut") == 130
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "cut" / "run.json").exists()
    assert pdcc(*words[1:], "-o", tmp_path / "cut", "--resume") == 0
    assert "resumed at step" in capsys.readouterr().err
    names = [
        json.loads((tmp_path / run / "run.json").read_text())["files"]["model.safetensors"]["name"]
        for run in ("whole", "cut")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--from", "run"], "--add: expected a file of new answers"),
        (["--add", "more.csv"], "--add: expected --from beside it"),
        (["--accuracy", "features.csv", "pairs.csv", "-k", "3"], "--accuracy: expected --from beside it"),
        (["features.csv", "pairs.csv"], "--clusters (-k): expected one, found none"),
        (["-k", "3"], "FEATURES: expected one, found none"),
        (["--from", "run", "--add", "more.csv", "-k", "4"], "--clusters: expected the 3 of"),
        (["--from", "run", "--add", "more.csv", "--scale", "unit"], "--scale: expected none beside --from"),
        (["--from", "run", "--add", "more.csv", "--id-column", "id"], "--id-column: expected none beside --from"),
        (["--from", "nowhere", "--add", "more.csv"], "expected a pdcc run"),
        (["--from", "run", "--add", "about-new.csv"], "'n6"),
        (["narrow.csv", "--from", "run", "--add", "more.csv"], "missing|columns"),
        (["other.csv", "--from", "run", "--add", "more.csv"], "X: expected the 60 items of the earlier fit first"),
        (["features.csv", "more.csv", "--from", "run", "--add", "more.csv"], "PAIRS: expected the file that"),
        (["--from", "run", "--add", "pairs.csv"], "more answers than the 200 of the earlier fit"),
    ],
)
def test_bad_commands(words, match, made, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(made)
    table = pd.read_csv("features.csv")
    table.drop(columns="a").to_csv("narrow.csv", index=False)
    table.assign(a=table.a + 5).to_csv("other.csv", index=False)
    assert pdcc("-q", "fit", "-o", tmp_path / "new", *words) == 2
    err = capsys.readouterr().err
    assert pd.Series([err]).str.contains(match, regex="|" in match).all(), err
    assert not (tmp_path / "new").exists()


def test_answers_without_annotators_beside_others_are_said(made, capsys, tmp_path):
    """Before any fit: the second file is not there."""
    more = pd.read_csv(made / "more.csv").rename(columns={"annotator": "given_by"})
    more.to_csv(tmp_path / "anonymous.csv", index=False)
    words = ["fit", "--from", made / "run", "--add", tmp_path / "anonymous.csv", "--add", tmp_path / "nowhere.csv"]
    assert pdcc(*words, "-o", tmp_path / "new") == 2
    said = capsys.readouterr().err
    assert "taken as by one annotator, 'unnamed'. Columns that are ignored: given_by." in said
    assert "--columns annotator=given_by." in said
    for named in (["--columns", "annotator=given_by"], []):
        more.rename(columns={} if named else {"given_by": "who"}).to_csv(tmp_path / "anonymous.csv", index=False)
        assert pdcc(*words, "-o", tmp_path / "new", *named) == 2
        assert "unnamed" not in capsys.readouterr().err


def test_the_earlier_run_is_not_replaced(made, capsys):
    assert pdcc("-q", "fit", "--from", made / "run", "--add", made / "more.csv", "-o", made / "run", "--overwrite") == 2
    assert "another directory than that of --from" in capsys.readouterr().err


def test_a_machine_answers_for_a_run_which_goes_on(made, capsys, tmp_path, monkeypatch):
    """pdcc ask RUN, then pdcc fit --from RUN --add: the machine is one more annotator."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by_sign.py").write_text(
        "class Rule:\n    name, version = 'sign', '1'\n\n    def answer(self, pairs, items):\n"
        "        return [(items[i]['a'] > 0) == (items[j]['a'] > 0) for i, j in pairs]\n"
    )
    pairs = pd.read_csv(made / "more.csv")[["i", "j"]].drop_duplicates()
    pairs.to_csv("next.csv", index=False)
    words = ["--pairs", "next.csv", "--oracle", "by_sign:Rule", "-o", "machine.csv", "--cache", "c.sqlite"]
    assert pdcc("-q", "ask", made / "run", *words, "--family", "rules") == 0
    assert f"{len(pairs)} answers" in capsys.readouterr().out
    assert pdcc("-q", "fit", "--from", made / "run", "--add", "machine.csv", "-o", "run2") == 0
    data = runs.read_data(tmp_path / "run2")
    assert data.annotator_names == ("ann", "bob", "rules:sign")
    assert len(data) == M_OLD + len(pairs)


def test_columns_are_as_the_earlier_run_was_told(made, capsys, tmp_path):
    """Through two runs; a file with other columns is read by its own, or the error says what was told."""
    names = {"i": "Links", "j": "Rechts", "similar": "Antwort", "annotator": "Wer"}
    told = "i=Links,j=Rechts,similar=Antwort,annotator=Wer"
    first, more = (pd.read_csv(made / name).rename(columns=names) for name in ("pairs.csv", "more.csv"))
    first.to_csv(tmp_path / "pairs.csv", index=False)
    more[:40].to_csv(tmp_path / "more.csv", index=False)
    more[40:80].to_csv(tmp_path / "again.csv", index=False)
    words = ["fit", made / "features.csv", tmp_path / "pairs.csv", "-k", 3, "--id-column", "id", *QUICK]
    assert pdcc("-q", *words, "-o", tmp_path / "run", "--columns", told) == 0
    for run, file in (("run", "more.csv"), ("run2", "again.csv")):
        words = ["fit", "--from", tmp_path / run, "--add", tmp_path / file, "--epochs", 1]
        assert pdcc(*words, "-o", tmp_path / ("run2" if run == "run" else "run3")) == 0
        assert f"read by the columns that the earlier run was told: --columns {told}." in capsys.readouterr().err
    data = runs.read_data(tmp_path / "run3")
    assert (len(data), data.annotator_names) == (280, ("ann", "bob"))
    more.drop(columns="Antwort").to_csv(tmp_path / "odd.csv", index=False)
    words = ["fit", "--from", tmp_path / "run2", "-o", tmp_path / "new", "--add"]
    assert pdcc(*words, tmp_path / "odd.csv") == 2
    said = capsys.readouterr().err
    assert f"told, --columns {told}, or such as i, j, similar, found the columns Links, Rechts, Wer." in said
    assert pdcc(*words, made / "more.csv", "--add", tmp_path / "odd.csv") == 2
    assert f"more.csv: has other columns than the earlier run was told (--columns {told})." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("renamed", "kept"),
    [
        ({"left": "i", "right": "j", "ann": "ann"}, "annotator=ann"),
        ({"left": "i", "right": "right", "ann": "ann"}, "annotator=ann"),
        ({"left": "left", "right": "right", "ann": "who"}, "i=left,j=right"),
        ({"left": "i", "right": "j", "ann": "who"}, ""),
    ],
)
def test_told_columns_that_a_file_has_are_kept(made, capsys, tmp_path, renamed, kept):
    """Two ends of a pair only together; where one of them is missing, the file's own pair is looked for."""
    names = {"i": "left", "j": "right", "annotator": "ann"}
    first, more = (pd.read_csv(made / name).rename(columns=names) for name in ("pairs.csv", "more.csv"))
    first.to_csv(tmp_path / "pairs.csv", index=False)
    more = more[:40].rename(columns=renamed)
    if "right" in more and "left" not in more:
        more = more.assign(j=more["right"])
    more.to_csv(tmp_path / "more.csv", index=False)
    told = "i=left,j=right,annotator=ann"
    words = ["fit", made / "features.csv", tmp_path / "pairs.csv", "-k", 3, "--id-column", "id", *QUICK]
    assert pdcc("-q", *words, "-o", tmp_path / "run", "--columns", told) == 0
    words = ["fit", "--from", tmp_path / "run", "--add", tmp_path / "more.csv", "-o", tmp_path / "run2"]
    assert pdcc(*words, "--epochs", 1) == 0
    said = capsys.readouterr().err
    assert f"more.csv: has other columns than the earlier run was told (--columns {told})." in said
    assert (f"Read by those of them that it has: --columns {kept}." in said) == bool(kept)
    assert "unnamed" not in said
    data = runs.read_data(tmp_path / "run2")
    assert (len(data), data.annotator_names) == (240, ("ann", "bob"))
