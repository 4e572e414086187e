"""The diagnosis: conditions measured rightly, verdicts that follow, and words that do not claim too much."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from pdcc import PairData, VanillaDCC, VolMaxDCC, check_ssc, diagnose
from pdcc.accuracy.estimate import Estimate
from pdcc.annotators import answer_through, draw_pairs
from pdcc.cli import main
from pdcc.experiments.identifiability_bank import squeeze
from pdcc.identifiability import conditions as c
from pdcc.identifiability.conditions import ConditionId
from pdcc.identifiability.diagnose import CONDITIONAL
from pdcc.identifiability.verdict import HALF, Overall, Question, judge_memberships
from pdcc.inference.prior_hmc import tilted_prior
from pdcc.models import log_volume

SETTING = {"hidden": (16,), "dropout": 0.0, "scale": "standard", "init": "random", "partition_weight": 0.0, "epochs": 40,
           "lr": 1e-2, "batch_size": 100, "progress": False, "device": "cpu"}  # fmt: skip
QUICK = {"draws": 60, "n_restarts": 4, "work": 5.0}


def problem(scatter=1.0, n_pairs=3000, seed=0, n=200):
    """Three clusters, memberships shrunk to the centre by ``scatter``, features that determine them."""
    rng = np.random.default_rng(seed)
    F = rng.dirichlet([0.3] * 3, size=n) @ squeeze(3, scatter)
    pairs = draw_pairs(n, n_pairs, rng)
    return F @ rng.normal(size=(3, 4)), F, pairs, answer_through(F, pairs, np.eye(3), rng).similar


@pytest.fixture(scope="module")
def easy():
    X, _, pairs, similar = problem()
    est = VolMaxDCC(3, confusion="none", volume=0.0, random_state=0, **SETTING).fit(X, pairs, similar)
    return est, X, pairs, similar, est.diagnose(X, pairs, similar, **QUICK)


def test_an_easy_case_is_supported_without_conditions(easy):
    *_, found = easy
    assert found.verdicts[Question.MEMBERSHIPS] == "supported"
    assert not found.conditional
    assert found.score > 0.8
    assert CONDITIONAL not in str(found)
    verdicts = dict(zip(found.table["id"], found.table["verdict"], strict=True))
    assert verdicts["alternatives"] == verdicts["rank"] == verdicts["function-class"] == "holds"
    assert found.table["id"].tolist() == list(ConditionId)
    assert (found.settings.draws, found.settings.n_restarts, found.settings.work) == (60, 4, 5.0)


def test_the_table_names_theorems_probabilities_and_priors(easy):
    *_, found = easy
    table = found.table.set_index("id")
    assert table.loc["scatter", "theorem"] == "Thm 3.7, Thm 4.1"
    for name in ("scatter", "anchors"):
        row = table.loc[name]
        shares = 60 * row[["probability_low", "probability_high"]], 15 * row[["prior_low", "prior_high"]]
        for low, high in shares:  # of 60 posterior draws, and of a quarter as many from the prior
            assert (low, high) == pytest.approx((round(low), round(high)))
            assert low <= high
    assert table.loc["rank", ["probability_low", "probability_high"]].tolist() == [1.0, 1.0]  # it holds
    assert table.loc["function-class", "probability_low"] is None  # a test, not a share of draws
    assert "purest of cluster 2" in table.loc["anchors", "evidence"]
    for kind in ("draw-wise", "of the mean", "neighbour-averaged"):
        assert kind in table.loc["scatter", "evidence"]


def test_it_is_plain_json_and_repeats(easy):
    est, X, pairs, similar, found = easy
    body = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert body["overall"] == found.overall
    assert len(body["conditions"]) == len(found.table)
    assert [(row["id"], row["title"]) for row in body["conditions"]] == [(r.id, r.title) for r in found.conditions]
    again = diagnose(est.fitted_, PairData.from_arrays(X, pairs, similar), **QUICK)
    assert again.to_dict() == found.to_dict()


def test_squeezed_memberships_are_not_supported():
    """At a scatter ratio of .3 and A = I, rotations of the memberships fit as well: restarts must find some."""
    X, F, pairs, similar = problem(scatter=0.3)
    assert check_ssc(F).verdict == "violated"
    est = VolMaxDCC(3, confusion="none", volume=0.0, random_state=0, **SETTING).fit(X, pairs, similar)
    found = est.diagnose(X, pairs, similar, **QUICK)
    assert found.verdicts[Question.MEMBERSHIPS] == "not supported"
    assert found.score < 0.5
    assert found.advice


@pytest.mark.slow
def test_twins_get_the_same_conditional_verdict():
    """Squeezed with A = I and scattered with A = S have equal likelihoods: no verdict may tell them apart, or be unconditional."""
    X, F, pairs, _ = problem(n_pairs=4000)
    S = squeeze(3, 0.7)
    p = np.einsum("mk,kl,ml->m", F[pairs[:, 0]], S.T @ S, F[pairs[:, 1]])
    squeezed = F @ S
    np.testing.assert_allclose(p, np.einsum("mk,mk->m", squeezed[pairs[:, 0]], squeezed[pairs[:, 1]]))
    similar = np.random.default_rng(1).random(len(p)) < p
    est = VolMaxDCC(3, confusion="sigmoid", volume=1e-3, confusion_lr=3e-2, random_state=0, **SETTING)
    found = est.fit(X, pairs, similar).diagnose(X, pairs, similar, **QUICK)
    assert found.conditional
    said = {
        word: replace(found, verdicts=found.verdicts | {Question.MEMBERSHIPS: word}).answer(Question.MEMBERSHIPS)
        for word in Overall
    }
    assert CONDITIONAL in said[Overall.SUPPORTED]
    assert CONDITIONAL not in said[Overall.NOT_SUPPORTED]
    assert (
        found.identified.low < 0.85
    )  # answers allow for squeezing, towards the twin with A = I (.7, but for estimation)


def test_undecided_draws_widen_the_interval():
    class Fake:
        def __init__(self, verdict, anchor):
            self.verdict, self.anchor_ratio = verdict, anchor

    kinds = [("satisfied", 1.0), ("satisfied", 0.5), ("violated", 0.2), ("undecided", np.nan)]
    some = c.Scattered(tuple(Fake(*k) for k in kinds))
    assert some.interval == (0.5, 0.75)
    assert some.anchored(0.05) == (0.25, 0.5)


def test_neighbour_averaging_undoes_the_inflation_by_noise():
    """theory.md: noise of .3 in the logits reads a true ratio of .70 as .86; averaging brings it back to about .73."""
    rng = np.random.default_rng(0)
    F = rng.dirichlet([0.3] * 3, size=1500) @ squeeze(3, 0.7)
    noisy = np.exp(np.log(F) + rng.normal(0, 0.3, size=F.shape))
    noisy /= noisy.sum(axis=1, keepdims=True)
    raw, averaged = (c.middle(check_ssc(one, gap=0.01)) for one in (noisy, c.neighbour_average(noisy, F)))
    assert raw > 0.8
    assert abs(averaged - 0.7) < 0.06


def test_alternatives_are_told_by_the_map_between_solutions():
    rng = np.random.default_rng(0)
    F = rng.dirichlet([0.3] * 3, size=300)
    Q = squeeze(3, 0.6)
    others = np.stack([F[:, [2, 0, 1]], F @ Q, rng.dirichlet([1.0] * 3, size=300)])
    nll = rng.exponential(size=200)
    found = c.find_alternatives(F, nll, 0.0, others, np.stack([nll, nll, nll + 1.0]), np.zeros(3))
    np.testing.assert_allclose(found.distance[0], 0.0, atol=1e-9)  # a permutation is no other solution
    assert found.distance[1] > c.SAME
    np.testing.assert_allclose(found.determinant, [1.0, np.linalg.det(Q)], rtol=1e-6)
    assert len(found.distance) == 2  # the third explains the answers worse
    assert c.alternatives_condition(found).verdict != c.HOLDS
    volume = c.find_alternatives(F, nll, 0.0, others, np.stack([nll] * 3), np.array([0.0, 0.5, 0.5]))
    assert len(volume.distance) == 1  # equal likelihood and less volume is no optimum


def test_unrelated_partitions_that_are_worse_on_every_answer_are_no_alternatives():
    """Six of them, each .07 nats worse on each of 1,000 answers, whatever their own median is."""
    rng = np.random.default_rng(0)
    F = np.eye(3)[rng.integers(3, size=300)]
    others = np.eye(3)[rng.integers(3, size=(6, 300))]
    nll = rng.exponential(0.3, size=1000)
    found = c.find_alternatives(F, nll, 0.0, others, np.stack([nll + 0.07] * 6), np.zeros(6))
    assert len(found.distance) == 0
    assert c.alternatives_condition(found).verdict == c.CANNOT_TELL


def test_a_rank_deficient_confusion_is_named():
    rng = np.random.default_rng(0)
    F = rng.dirichlet([0.3] * 4, size=(20, 100)).astype(np.float32)
    A = 0.8 * np.eye(4) + 0.05
    A[:, 1] = A[:, 0]
    B = np.repeat((A.T @ A)[None], 20, axis=0)
    found = c.rank_condition(F, B)
    assert found.verdict == c.FAILS
    assert "clusters 0 and 1" in found.advice
    assert "n_clusters=3" in found.advice  # to merge them
    assert c.rank_condition(F, np.repeat(np.eye(4)[None], 20, axis=0)).verdict == c.HOLDS


def test_the_verdict_on_memberships_follows_from_score_and_vetoes():
    fine = dict.fromkeys(ConditionId, c.HOLDS)
    overall, high = judge_memberships(fine, 0.002, 4, True)
    assert overall == "supported"
    assert judge_memberships(fine, HALF[True] * 0.95, 4, True)[0] == "cannot tell"
    overall, low = judge_memberships(fine, 0.3, 4, True)
    assert overall == "not supported"
    assert low < high
    assert judge_memberships(fine, 0.002, 1, True)[0] == "cannot tell"
    assert judge_memberships(fine, None, 4, True)[0] == "cannot tell"
    assert judge_memberships(fine | {ConditionId.RANK: c.FAILS}, 0.002, 4, True)[0] == "not supported"
    for veto in (ConditionId.SCATTER, ConditionId.FUNCTION_CLASS, ConditionId.ALTERNATIVES):
        assert judge_memberships(fine | {veto: c.FAILS}, 0.002, 4, True)[0] == "cannot tell"


def test_a_small_cluster_is_not_a_confounded_one():
    """A = I and one item in a thousand in the last cluster: the rank is full, and nobody should merge the others."""
    F = np.eye(3)[np.r_[np.zeros(500), np.ones(499), 2].astype(int)]
    found = c.rank_condition(np.repeat(F[None].astype(np.float32), 5, axis=0), np.repeat(np.eye(3)[None], 5, axis=0))
    assert found.verdict == c.HOLDS


def test_certain_and_wrong_is_no_fit():
    assert c.class_condition(np.ones(40), np.zeros(40, dtype=bool)).verdict == c.FAILS
    assert c.class_condition(np.ones(40), np.ones(40, dtype=bool)).verdict == c.CANNOT_TELL
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    assert c.class_condition(p, rng.random(2000) < p).verdict == c.HOLDS
    assert c.class_condition(p, rng.random(2000) < p**3).verdict == c.FAILS


def test_the_prior_is_the_prior_and_the_volume_tilts_it():
    """Without volume, draws are the Normal's; with a heavy one they must spread wider, whatever was fitted."""
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    plain, faint, heavy = (tilted_prior(x, 0.5, weight, 3, draws=60, seed=1) for weight in (0.0, 1e-9, 200.0))
    assert abs(float(plain.std()) - 0.5) < 0.05  # 540 numbers: a standard error of .015
    assert abs(float(faint.std()) - 0.5) < 0.1  # dependent moves: about a hundred numbers' worth
    volumes = [float(log_volume(torch.softmax(x @ w, -1)).mean()) for w in (plain, heavy)]
    assert volumes[1] > volumes[0] + 1


@pytest.mark.parametrize(
    "case", ["annotators", "partition", "nothing held out", "two clusters", "vanilla", "many latents"]
)
def test_it_runs_on_what_people_have(case):
    rng = np.random.default_rng(0)
    K = 2 if case == "two clusters" else 3
    F = rng.dirichlet([0.3] * K, size=60)
    X = (F @ rng.normal(size=(K, 4))).astype(np.float32)
    pairs = draw_pairs(60, 400, rng)
    similar = answer_through(F, pairs, np.eye(K), rng).similar
    who = np.arange(400) % 12 if case == "annotators" else None
    options = SETTING | {"epochs": 4, "init": "kmeans" if case == "partition" else "random"}
    options |= {
        "partition_weight": 0.5 if case == "partition" else 0.0,
        "validation_fraction": 0.0 if case == "nothing held out" else 0.1,
    }
    options |= {"hidden": (200,) if case == "many latents" else (8,)}
    made = (
        VanillaDCC(K, random_state=0, **options)
        if case == "vanilla"
        else VolMaxDCC(K, confusion="stochastic", volume=1e-2, random_state=0, **options)
    )
    est = made.fit(X, pairs, similar, who)
    found = est.diagnose(X, pairs, similar, who, quick=True, draws=3, work=1.0)
    assert found.verdicts[Question.MEMBERSHIPS] != "supported"  # two restarts are too few to support anything
    assert found.conditional == (case != "vanilla")  # only where a confusion is free
    assert "nan" not in str(found)
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.items) == 60
    assert len(found.clusters) == K


def test_the_split_is_the_one_that_was_fitted():
    """Twelve people, held out whole: the fit remembers which answers, so that nobody has to be named again."""
    X, _, pairs, similar = problem(n_pairs=600, n=60)
    who = np.arange(600) % 12
    est = VolMaxDCC(3, confusion="none", volume=0.0, random_state=0, **SETTING | {"epochs": 4})
    est.fit(X, pairs, similar, who)
    small = {"quick": True, "draws": 3, "work": 1.0}
    named, unnamed = est.diagnose(X, pairs, similar, who, **small), est.diagnose(X, pairs, similar, **small)
    evidence = [
        next(r.evidence for r in found.conditions if r.id is ConditionId.FUNCTION_CLASS) for found in (named, unnamed)
    ]
    assert evidence[0]["held-out answers"] == est.report_.n_held_out == 50
    assert evidence[0] == evidence[1]
    other = similar.copy()
    other[7] = ~other[7]
    for changed in ((pairs, other), (pairs[::-1], similar[::-1])):
        with pytest.raises(ValueError, match="expected the answers that were fitted"):
            est.diagnose(X, *changed, who, **small)


def test_bad_arguments(easy):
    est, X, pairs, similar, _ = easy
    for odd, kind in ({"draws": 1}, ValueError), ({"n_restarts": 0}, ValueError), ({"work": 0.0}, ValueError), ({"random_state": "x"}, TypeError):  # fmt: skip
        with pytest.raises(kind, match=f"{next(iter(odd))}: expected"):
            est.diagnose(X, pairs, similar, **odd)


def test_unknown_options_are_told_which_there_are(easy):
    est, X, pairs, similar, _ = easy
    with pytest.raises(TypeError, match=r"options among trusted, .*, found 'seed'. The seed is random_state"):
        est.diagnose(X, pairs, similar, seed=1)
    options = [name for name in diagnose.__kwdefaults__ if name != "progress"]
    assert all(name in est.diagnose.__doc__ for name in options)


def test_nothing_is_said_of_pairs_where_nothing_is_claimed(easy):
    *_, found = easy
    assert "Pairs in one cluster: " in str(found)
    none = replace(found, precision=Estimate(), recall=Estimate())
    assert "\nPairs: no claim.\n" in str(none)
    assert "belong together" not in str(none)


def pdcc(*arguments) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code)


def test_the_command_needs_only_the_run(tmp_path, capsys):
    X, _, pairs, similar = problem(n_pairs=800, n=120)
    names = [f"item <{k}>" for k in range(len(X))]
    table = pd.DataFrame(X.astype(np.float32), columns=list("abcd"))
    table.insert(0, "name", names)
    table.to_csv(tmp_path / "x.csv", index=False)
    frame = pd.DataFrame(
        {"i": np.array(names)[pairs[:, 0]], "j": np.array(names)[pairs[:, 1]], "similar": similar.astype(int)}
    )
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    run = tmp_path / "run"
    assert (
        pdcc(
            "-q",
            "fit",
            tmp_path / "x.csv",
            tmp_path / "pairs.csv",
            "-k",
            3,
            "-o",
            run,
            "--epochs",
            3,
            "--id-column",
            "name",
        )
        == 0
    )
    capsys.readouterr()
    out = tmp_path / "diagnosis.json"
    code = pdcc("-q", "diagnose", run, "-o", out, "--quick", "--draws", 10, "--strict", "labels")
    text = capsys.readouterr().out
    body = json.loads(out.read_text())
    assert code == (0 if body["overall"] == "supported" else 1)
    assert body["answers"]["labels"] in text
    anchors = next(row for row in body["conditions"] if row["id"] == "anchors")
    assert "item <" in anchors["evidence"]["purest of cluster 0"]
    listed = tmp_path / "settled.csv"
    texts = "item,text\n0,mine\n"
    listed.write_text(texts)
    assert pdcc("-q", "diagnose", run, "--quick", "--items", listed) == 2
    assert "--items: expected a new file, or one that it wrote before" in capsys.readouterr().err
    assert listed.read_text() == texts
    listed.write_text("item,label,probability,settled,set\nold,0,1.0,True,{0}\n")
    few = tmp_path / "trusted.csv"
    pd.DataFrame({"name": names[:40], "class": ["a", "b"] * 20}).to_csv(few, index=False)
    assert pdcc("-q", "diagnose", run, "--quick", "--items", listed, "--trusted", few) == 0
    assert "by the trusted labels" in capsys.readouterr().out
    table = pd.read_csv(listed)
    assert table.columns.tolist() == ["item", "label", "probability", "settled", "set"]
    assert table["item"].tolist() == names
    assert pdcc("-q", "diagnose", run, "--strict", "everything") == 2
    assert "Choose the question" in capsys.readouterr().err
    (tmp_path / "x.csv").rename(tmp_path / "moved.csv")
    assert pdcc("-q", "diagnose", run) == 2
    assert "--features" in capsys.readouterr().err
    assert pdcc("-q", "diagnose", run, "--features", tmp_path / "pairs.csv") == 2
    assert "pairs.csv: not the features" in capsys.readouterr().err
    assert pdcc("-q", "diagnose", run, "--features", tmp_path / "moved.csv", "--quick", "--restarts", 1) == 0
