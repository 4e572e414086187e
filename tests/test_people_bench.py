"""The benchmark on people's answers: its draws, its damaged sessions, its plan and its report."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs
from typer.testing import CliRunner

from pdcc import VolMaxDCC, datasets
from pdcc.cli import app
from pdcc.experiments import cells, methods, people_summary, presets, tasks
from pdcc.experiments.gaussian_mixture import PrincipalMixture
from pdcc.experiments.people import DAMAGES, people_tasks
from pdcc.metrics import acc

ITEMS, SESSIONS, QUESTIONS = 40, 20, 30


def write_photographs(directory, name="birds5"):
    """20 sessions of 30 answers each about 40 items of two classes; session 0 is always wrong."""
    rng = np.random.default_rng(0)
    y = np.arange(ITEMS) % 2
    X = (4 * np.eye(2)[y] + rng.normal(size=(ITEMS, 2))).astype(np.float16)
    i = rng.integers(ITEMS, size=SESSIONS * QUESTIONS)
    j = (i + rng.integers(1, ITEMS, size=len(i))) % ITEMS
    annotator = np.repeat(np.arange(SESSIONS) + 7, QUESTIONS)
    similar = ((y[i] == y[j]) ^ (annotator == 7)).astype(np.int8)
    np.savez(directory / f"{name}_pairs.npz", X=X, X_mid=X[:, :1], y=y, i=i, j=j, similar=similar, annotator=annotator)


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """A PDCC_DATA directory with small archives of every study."""
    where = tmp_path / "data"
    where.mkdir()
    write_photographs(where)
    write_photographs(where, "dogs3")
    rng = np.random.default_rng(1)
    y = np.arange(ITEMS) % 8
    seen = {"X_seen": rng.normal(size=(ITEMS, 6)), "y_seen": y, "X_unseen": np.ones((4, 6)), "y_unseen": y[:4]}
    given = np.where(rng.random((ITEMS, 5)) < 0.9, y[:, None], -1)
    np.savez(where / "labelme.npz", **seen, answers=given)
    human = {f"human_{noise}": rng.permutation(y) for noise in datasets.CIFAR10N_NOISE[1:]}
    np.savez(where / "cifar10n.npz", **seen, **human)
    i, j = np.triu_indices(ITEMS, k=1)
    cluster = np.arange(ITEMS) % 3
    judgment = np.where(cluster[i] == cluster[j], 4, 1)
    uses = {"X": rng.normal(size=(ITEMS, 6)), "i": i, "j": j, "annotator": np.arange(len(i)) % 9, "cluster": cluster}
    for word in ("bar", "plane"):
        np.savez(where / f"dwug_{word}_nn.npz", **uses, judgment=judgment)
    monkeypatch.setenv("PDCC_DATA", str(where))
    return where


def test_photographs_are_read_or_clearly_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("PDCC_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"PDCC_DATA is not set.*birds5_pairs\.npz"):
        datasets.photographs()
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no dogs3_pairs\.npz"):
        datasets.photographs("dogs3")
    with pytest.raises(ValueError, match=r"name: expected one of birds5, dogs3, found 'cats'"):
        datasets.photographs("cats")
    with pytest.raises(ValueError, match=r"features: expected one of full, mid, found 'X'"):
        datasets.photographs("birds5", "X")
    write_photographs(tmp_path)
    full, mid = datasets.photographs("birds5"), datasets.photographs("birds5", "mid")
    assert (full.X.shape, mid.X.shape) == ((ITEMS, 2), (ITEMS, 1))
    assert full.X.dtype == np.float32
    assert full.similar.dtype == bool
    same = full.y[full.pairs[:, 0]] == full.y[full.pairs[:, 1]]
    np.testing.assert_array_equal(full.similar == same, full.annotators != 7)
    np.testing.assert_array_equal(full.pairs, mid.pairs)


def test_draw_0_has_every_answer_and_others_nine_tenths_of_the_sessions(archives):
    asked = datasets.photographs("birds5")
    first, other, again, mid = (
        tasks.load(f"people-birds5-{part}-all", draw)
        for part, draw in (("full", 0), ("full", 1), ("full", 1), ("mid", 1))
    )
    np.testing.assert_array_equal(first.pairs, asked.pairs)
    np.testing.assert_array_equal(first.similar, asked.similar)
    np.testing.assert_array_equal(first.annotators, asked.annotators)
    assert first.flip_rate == pytest.approx(1 / SESSIONS)
    assert first.n_clusters == 2
    assert first.X_unseen is None
    sessions, counts = np.unique(other.annotators, return_counts=True)
    assert len(sessions) == 18
    assert (counts == QUESTIONS).all()
    assert set(sessions) != set(np.unique(tasks.load("people-birds5-full-all", 2).annotators))
    np.testing.assert_array_equal(other.pairs, again.pairs)
    np.testing.assert_array_equal(other.pairs, mid.pairs)
    assert mid.X.shape[1] == 1


def test_smaller_sizes_are_random_answers_and_nested(archives):
    asked = datasets.photographs("birds5")
    every = {(*pair, who) for pair, who in zip(asked.pairs.tolist(), asked.annotators.tolist(), strict=True)}
    one, three, other = (
        tasks.load(f"people-birds5-full-{size}", draw) for size, draw in (("n", 0), ("3n", 0), ("n", 1))
    )
    assert (len(one.pairs), len(three.pairs)) == (ITEMS, 3 * ITEMS)
    np.testing.assert_array_equal(one.pairs, three.pairs[:ITEMS])
    assert not np.array_equal(one.pairs, other.pairs)
    found = {(*pair, who) for pair, who in zip(three.pairs.tolist(), three.annotators.tolist(), strict=True)}
    assert found <= every
    wrong = three.similar != (asked.y[three.pairs[:, 0]] == asked.y[three.pairs[:, 1]])
    np.testing.assert_array_equal(wrong, three.annotators == 7)


def test_damage_is_done_to_whole_sessions(archives):
    asked = datasets.photographs("birds5")
    for kind, n_sessions in (("coins", 10), ("swapped", 2)):
        problem = tasks.load(f"people-birds5-full-{kind}", 0)
        np.testing.assert_array_equal(problem.pairs, asked.pairs)
        changed = problem.similar != asked.similar
        shares = np.array([changed[asked.annotators == who].mean() for who in np.unique(asked.annotators)])
        assert (shares > 0).sum() == n_sessions
        if kind == "swapped":
            assert set(shares) == {0.0, 1.0}
        else:  # a coin changes half of the answers: 300 tosses, four standard errors
            assert abs(shares[shares > 0].mean() - 0.5) < 4 * np.sqrt(0.25 / 300)
            same = problem.similar[np.isin(asked.annotators, np.unique(asked.annotators)[shares > 0])].mean()
            assert abs(same - 0.5) < 4 * np.sqrt(0.25 / 300)
        other = tasks.load(f"people-birds5-full-{kind}", 1)
        assert not np.array_equal(problem.similar, other.similar)


def test_sizes_of_the_studies_with_labels(archives):
    for study in ("labelme-full", "cifar10n-worse"):
        sizes = {size: len(tasks.load(f"people-{study}-{size}", 0).pairs) for size in ("n", "3n", "all")}
        usual = len(tasks.load(study.removesuffix("-full"), 0).pairs)
        assert sizes == {"n": ITEMS, "3n": 3 * ITEMS, "all": usual}
    assert usual == tasks.HUMAN_PAIRS
    one, usual_one = tasks.load("people-labelme-full-all", 1), tasks.load("labelme", 1)
    np.testing.assert_array_equal(one.pairs, usual_one.pairs)
    np.testing.assert_array_equal(one.annotators, usual_one.annotators)


def test_sizes_of_judgments_are_of_those_that_train(archives):
    whole, one, three = (tasks.load(f"people-dwug-bar-{size}", 1) for size in ("all", "n", "3n"))
    usual = tasks.load("dwug-bar", 1)
    np.testing.assert_array_equal(whole.pairs, usual.pairs)
    assert (len(one.pairs), len(three.pairs)) == (ITEMS, 3 * ITEMS)
    np.testing.assert_array_equal(one.pairs, three.pairs[:ITEMS])
    train = {(*pair, who) for pair, who in zip(whole.pairs.tolist(), whole.annotators.tolist(), strict=True)}
    assert {(*pair, who) for pair, who in zip(three.pairs.tolist(), three.annotators.tolist(), strict=True)} <= train
    assert one.truth is None
    for kind in ("new pairs", "new people"):
        np.testing.assert_array_equal(one.held[kind].pairs, usual.held[kind].pairs)


def test_the_plan_runs_nothing_twice():
    preset = presets.PRESETS["people"]
    plan = cells.plan(preset.tasks, preset.methods, 1, 0)
    assert len(plan) == len(set(plan))
    of = {task: {cell.method for cell in plan if cell.task == task} for task in preset.tasks}
    studies = {task.split("-")[1] for task in preset.tasks}
    assert studies == {"birds5", "dogs3", "labelme", "cifar10n", "dwug"}
    assert "people-cifar10n-worse-n" not in of  # as many items as "all" has pairs
    for task, ran in of.items():
        assert {"kmeans-unscaled", "pck-means-standard", "gaussian-mixture", "vanilla", "volmax-paper", "volmax"} <= ran
        assert ("volmax-no-ids" in ran) == ("cifar10n" not in task)
        assert ("kmeans-unit" in ran) == ("pck-means-unit" in ran) == ("cifar10n" in task or "labelme" in task)
    robust = presets.PRESETS["people-robust"]
    assert set(robust.tasks) == set(people_tasks(DAMAGES, ("birds5", "dogs3")))
    assert robust.methods == ("volmax",)
    # A data set, a part and a size can be combined.
    assert presets._having(preset.tasks, ("birds5", "mid", "3n")) == ("people-birds5-mid-3n",)


def test_without_ids_the_default_does_not_see_who_answered():
    blobs = make_blobs(n=60, n_pairs=300)
    who = np.arange(300) % 12
    small = {
        "epochs": 2,
        "hidden": (8,),
        "scale": None,
        "confusion": "per-annotator",
        "random_state": 0,
        "progress": False,
    }
    est = methods.WithoutIds(3, **small).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar, who)
    plain = VolMaxDCC(3, **small).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    np.testing.assert_array_equal(est.predict_proba(blobs.X), plain.predict_proba(blobs.X))
    assert est.annotator_confusion_ is None or len(est.annotator_confusion_) <= 1
    asked = blobs.answers.pairs[:12]
    np.testing.assert_array_equal(est.predict_pairs(blobs.X, asked, who[:12]), est.predict_pairs(blobs.X, asked))


def test_the_gaussian_mixture_sees_shapes_and_no_answers():
    """A tight cluster beside a wide one, and 20 further columns of little noise: K-means cuts the wide one."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    plane = np.where(y[:, None] == 0, [0.0, 0.0], [5.0, 0.0]) + np.where(y == 0, 3.0, 0.3)[:, None] * rng.normal(
        size=(300, 2)
    )
    X = np.column_stack([plane, rng.normal(scale=0.05, size=(300, 20))]).astype(np.float32)
    pairs, similar = rng.permutation(300)[:200].reshape(100, 2), rng.random(100) < 0.5
    est = PrincipalMixture(2, random_state=0).fit(X, pairs, similar)
    assert acc(y, est.labels_) > 0.97
    assert acc(y, methods.KMeans(2, scale=None, random_state=0).fit(X, pairs, similar).labels_) < 0.9
    np.testing.assert_array_equal(est.predict(X), est.labels_)
    np.testing.assert_allclose(est.memberships_.sum(axis=1), 1.0)
    other = PrincipalMixture(2, random_state=0).fit(X, pairs, ~similar)
    np.testing.assert_array_equal(other.memberships_, est.memberships_)
    assert isinstance(methods.METHODS["gaussian-mixture"].make(2, 0, None), PrincipalMixture)


def made_up():
    """Three draws of two birds cells, and two of one DWUG cell."""
    values = {
        ("people-birds5-full-all", "acc_seen"): {
            "volmax": [0.80, 0.90, 0.70], "volmax-no-ids": [0.70, 0.80, 0.75], "vanilla": [0.5, 0.5, 0.5],
            "kmeans-standard": [0.60, 0.60, 0.60], "kmeans-unscaled": [0.70, 0.60, 0.65],
            "pck-means-standard": [0.70, 0.80, 0.75], "pck-means-unscaled": [0.90, 0.60, 0.60],
        },
        ("people-birds5-full-n", "acc_seen"): {
            "volmax": [0.60, 0.60, 0.60], "volmax-no-ids": [0.60, 0.60, 0.60],
            "kmeans-standard": [0.50, 0.60, 0.40], "kmeans-unscaled": [0.10, 0.10, 0.10],
            "pck-means-standard": [0.30, 0.30, 0.30], "pck-means-unscaled": [0.20, 0.20, 0.20],
        },
        ("people-dwug-bar-all", "auc, new pairs"): {
            "volmax": [0.80, 0.90], "volmax-no-ids": [0.80, 0.80],
            "kmeans-standard": [0.6, 0.6], "kmeans-unscaled": [0.7, 0.7],
            "pck-means-standard": [0.5, 0.5], "pck-means-unscaled": [0.4, 0.4],
        },
        ("people-dwug-bar-all", "log_loss, new pairs"): {
            "volmax": [0.30, 0.20], "volmax-no-ids": [0.4, 0.4],
            "kmeans-standard": [0.6, 0.6], "kmeans-unscaled": [0.5, 0.4],
            "pck-means-standard": [0.7, 0.7], "pck-means-unscaled": [0.8, 0.8],
        },
    }  # fmt: skip
    found = {}
    for (task, measure), by_method in values.items():
        for method, scores in by_method.items():
            for trial, score in enumerate(scores):
                key = {"task": task, "method": method, "trial": trial, "seed": 0}
                record = found.setdefault(tuple(key.values()), key | {"status": "done", "seconds": 1.0, "peak_mb": 9.0})
                record |= {
                    measure: score,
                    "message": "",
                    "date": "2024-05-06",
                    "versions": {"torch": "2"},
                    "source": "x",
                }
    return list(found.values())


def test_differences_by_hand():
    draws = people_summary.compare_draws(made_up())
    table = people_summary.summarise_people(draws).set_index(["task", "measure"])
    row = table.loc[("people-birds5-full-all", "acc_seen")]
    # The best mean chooses each scaling; PCKMeans on standardised columns is then the better of the two.
    assert row["K-means, scaling by labels (which)"] == "kmeans-unscaled"
    assert row["PCKMeans, scaling by labels (which)"] == "pck-means-standard"
    gaps = np.array([0.10, 0.10, -0.05])
    assert row[people_summary.OVER] == pytest.approx(gaps.mean())
    assert row[f"{people_summary.OVER} (se)"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert row[people_summary.IDS] == pytest.approx(0.05)
    assert row[people_summary.OVER_NO_IDS] == pytest.approx(0.0)
    assert row["draws"] == 3
    loss = table.loc[("people-dwug-bar-all", "log_loss, new pairs")]
    assert loss["K-means, scaling by labels (which)"] == "kmeans-unscaled"  # the least loss
    assert loss[people_summary.OVER] == pytest.approx(0.2)  # a smaller loss is better
    assert loss[people_summary.IDS] == pytest.approx(0.15)

    studies = people_summary.summarise_studies(draws).set_index("study")
    assert studies.index.tolist() == ["birds5", "dwug", "all studies"]
    birds = (gaps + np.array([0.10, 0.0, 0.20])) / 2  # draw by draw over the cells
    se = birds.std(ddof=1) / np.sqrt(3)
    assert studies.loc["birds5", people_summary.OVER] == pytest.approx(birds.mean())
    assert studies.loc["birds5", f"{people_summary.OVER} (se)"] == pytest.approx(se)
    assert studies.loc["dwug", people_summary.OVER] == pytest.approx(0.15)  # its AUC alone
    assert studies.loc["all studies", people_summary.OVER] == pytest.approx((birds.mean() + 0.15) / 2)
    both = np.sqrt(se**2 + 0.05**2) / 2
    assert studies.loc["all studies", f"{people_summary.OVER} (se)"] == pytest.approx(both)
    assert np.isnan(studies.loc["birds5", "vanilla"])  # one of its cells lacks it

    turned = people_summary.compare_draws(made_up()[::-1])  # rows are in the order of the records
    assert turned.index[0][1:3] == ("people-dwug-bar-all", "auc, new pairs")
    assert turned.index[-1][1] == "people-birds5-full-all"
    # Without one of the scalings there is no comparison.
    part = [r for r in made_up() if r["method"] != "pck-means-unscaled"]
    assert people_summary.compare_draws(part)[people_summary.OVER].isna().all()


def test_the_report_names_label_based_choices_and_failures(tmp_path):
    failed = {
        "task": "people-birds5-full-n",
        "method": "vanilla",
        "trial": 0,
        "seed": 0,
        "status": "failed",
        "seconds": 1.0,
    }
    failed |= {"message": "ValueError: no solution", "date": "2024-05-06", "versions": {"torch": "2"}}
    text = people_summary.write_people_report([*made_up(), failed], tmp_path, "People")
    assert "That is a label-based choice" in text
    head = "| task | measure | draws | K-means, scaling by labels | PCKMeans, scaling by labels | VanillaDCC |"
    assert head in text
    assert "| 0.650 ± 0.029 (unscaled) | 0.750 ± 0.029 (standard) | 0.500 ± 0.000 |" in text
    assert "+0.050 ± 0.050" in text
    assert "| people-birds5-full-all | acc_seen | +0.050 ± 0.050 | 3 |" in text  # ids - no ids
    assert "## Log-loss of held-out answers" in text
    assert "- people-birds5-full-n, vanilla, trial 0: ValueError: no solution" in text
    assert pd.read_csv(tmp_path / "studies.csv")["study"].tolist() == ["birds5", "dwug", "all studies"]
    assert len(pd.read_csv(tmp_path / "people.csv")) == 4
    assert len(pd.read_csv(tmp_path / "draws.csv")) == 10
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "Nothing was run." in people_summary.people_tables([failed])


def test_a_part_runs_from_the_command_line_and_goes_on(archives, tmp_path):
    output = tmp_path / "out"
    some = [
        "--only",
        "birds5",
        "--only",
        "dwug",
        "--only",
        "n",
        "--methods",
        "gaussian-mixture",
        "--method",
        "kmeans-unscaled",
    ]
    args = ["bench", "people", "-o", str(output), *some]
    first = CliRunner().invoke(app, [*args, "--trials", "1"])
    assert first.exit_code == 0, first.exception
    assert "| people-birds5-mid-n | acc_seen | 1 |" in first.output
    assert "| people-dwug-plane-n | auc, new people | 1 |" in first.output
    lines = (output / cells.CELLS).read_text().splitlines()
    assert len(lines) == 8
    assert all(json.loads(line)["status"] == "done" for line in lines)
    assert CliRunner().invoke(app, [*args, "--trials", "2"]).exit_code == 0
    after = (output / cells.CELLS).read_text().splitlines()
    assert after[:8] == lines
    assert len(after) == 16


def test_sets_of_answers_that_are_not_there_are_skipped(tmp_path, monkeypatch, caplog):
    write_photographs(tmp_path)
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    presets.bench("people", tmp_path / "out", only=("n",), methods=("kmeans-unscaled",), trials=1)
    ran = pd.read_csv(tmp_path / "out" / "cells.csv")["task"]
    assert ran.tolist() == ["people-birds5-full-n", "people-birds5-mid-n"]
    (skipped,) = [m for m in caplog.messages if m.startswith("skipped")]
    assert skipped.startswith("skipped dogs3-full, dogs3-mid, labelme-full, dwug-bar, dwug-plane: ")
    assert "dogs3_pairs.npz" in skipped
    monkeypatch.delenv("PDCC_DATA")
    with pytest.raises(FileNotFoundError, match="PDCC_DATA is not set"):
        presets.bench("people-robust", tmp_path / "out", trials=1)
