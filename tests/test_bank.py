"""The bank: answers that are wrong in the way their kind says, tasks that share what they should, and a summary that adds up."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pdcc import VanillaDCC, VolMaxDCC, annotators, datasets, plots
from pdcc.cli import app
from pdcc.experiments import bank, bank_summary, cells, methods, presets, tables, tasks
from pdcc.metrics import acc


def same_class(y, pairs):
    return y[pairs[:, 0]] == y[pairs[:, 1]]


def test_distinct_pairs_are_each_drawn_once():
    rng = np.random.default_rng(0)
    every = annotators.draw_pairs(9, 36, rng, distinct=True)
    assert {frozenset(p) for p in every.tolist()} == {frozenset((i, j)) for i in range(9) for j in range(i)}
    first = np.array([annotators.draw_pairs(4, 1, rng, distinct=True)[0] for _ in range(6000)])
    counts = np.bincount(4 * first[:, 0] + first[:, 1], minlength=16).reshape(4, 4)
    assert (counts.diagonal() == 0).all()
    # Twelve ordered pairs, 500 expected of each: within five standard errors.
    assert np.abs(counts[~np.eye(4, dtype=bool)] - 500).max() < 5 * np.sqrt(500)
    many = annotators.draw_pairs(3_000_000, 1000, rng, distinct=True)
    assert many.min() >= 0
    assert many.max() < 3_000_000
    assert (many[:, 0] != many[:, 1]).all()
    with pytest.raises(ValueError, match=r"n_pairs: expected at most 36 .* found 37"):
        annotators.draw_pairs(9, 37, rng, distinct=True)


def test_flips_do_not_look_at_classes():
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=400)
    pairs = annotators.draw_pairs(400, 20_000, rng)
    answers = annotators.answer_with_flips(y, pairs, 0.1, rng)
    wrong = answers.similar != same_class(y, pairs)
    for part in (wrong[same_class(y, pairs)], wrong[~same_class(y, pairs)]):
        assert abs(part.mean() - 0.1) < 4 * np.sqrt(0.09 / len(part))
    assert answers.flip_rate == pytest.approx(wrong.mean())


def test_mistaken_labels_are_another_class_each_alike():
    y = np.repeat([2, 5, 7, 9], 3000)
    taken = annotators.mistaken_labels(y, 0.2, np.random.default_rng(2))
    assert (taken != y).sum() == 2400
    for true in (2, 5, 7, 9):
        _, counts = np.unique(taken[(y == true) & (taken != y)], return_counts=True)
        assert len(counts) == 3
        assert np.abs(counts - counts.mean()).max() < 4 * np.sqrt(200)  # 200 expected of each
    A = annotators.uniform_confusion(4, 0.2)
    np.testing.assert_allclose(A.diagonal(), 0.8)
    np.testing.assert_allclose(A[~np.eye(4, dtype=bool)], 0.2 / 3)


def asked(n_pairs=30_000, seed=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=300)
    X = (10.0 ** np.arange(4) * (np.eye(4)[y] + rng.normal(scale=0.5, size=(300, 4)))).astype(np.float32)
    return X, y, annotators.draw_pairs(300, n_pairs, rng, distinct=True), rng


def broken_triples(answers):
    """How often a is like b and b like c, but a, that was asked about too, is not like c."""
    table = np.zeros((300, 300), dtype=int)
    known = np.zeros((300, 300), dtype=bool)
    i, j = answers.pairs.T
    table[i, j] = table[j, i] = answers.similar
    known[i, j] = known[j, i] = True
    return int(((table @ table > 0) & known & (table == 0)).sum())


@pytest.mark.parametrize("kind", bank.KINDS)
def test_each_kind_is_wrong_in_its_own_way(kind):
    given = asked()
    _, y, pairs, _ = given
    answers = bank.KINDS[kind](given)
    wrong = answers.similar != same_class(y, pairs)
    assert answers.flip_rate == pytest.approx(wrong.mean())
    assert (answers.annotators is not None) == (kind == "eight")
    assert (answers.flip_rate == 0.0) == (kind == "clean")
    # Errors of labels that are in a mind, or a machine, contradict nobody; drawn afresh for every answer they do.
    assert (broken_triples(answers) == 0) == (kind in ("clean", "mind", "machine"))
    if kind in ("flips", "confusion"):
        # Both labels right, or both wrong and the same by chance.
        expected = 0.9 if kind == "flips" else 0.8**2 + 0.2**2 / 2
        same = answers.similar[same_class(y, pairs)]
        assert abs(same.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / len(same))
    if kind == "eight":
        rates = [wrong[answers.annotators == r].mean() for r in range(8)]
        assert all(a < b for a, b in pairwise(rates[::2]))  # 10 % apart in error: several standard errors each
        together = [answers.similar[(answers.annotators == r) & same_class(y, pairs)].mean() for r in (0, 7)]
        for found, error in zip(together, (0.05, 0.40), strict=True):
            assert abs(found - (1 - error) ** 2 - error**2 / 2) < 0.06  # about 1,200 pairs each: four standard errors


def test_a_machine_sees_few_labels_and_standardised_columns(monkeypatch):
    shown = []

    def spy(X, y, pairs, *, n_labels, seed):
        shown.append((X, n_labels))
        return annotators.answer_by_labels(y, y, pairs)

    monkeypatch.setattr(bank, "machine_annotator", spy)
    X, y, pairs, rng = asked(n_pairs=10)
    bank.KINDS["machine"]((X, y, pairs, rng))
    bank.KINDS["machine"]((np.repeat(X, 10, axis=0), np.repeat(y, 10), pairs, rng))
    assert [n for _, n in shown] == [9, 60]  # three per class; 2 % of the items where that is more
    np.testing.assert_allclose(shown[0][0].mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(shown[0][0].std(axis=0), 1.0)


def test_tasks_of_a_data_set_share_items_and_pairs():
    one = {task: tasks.load(task, 1) for task in bank.bank_tasks(("iris",)) if "machine" not in task}
    assert len(one) == 15
    longest = one["bank-iris-clean-5"].pairs
    assert len({frozenset(p) for p in longest.tolist()}) == len(longest) == 750
    for task, found in one.items():
        np.testing.assert_array_equal(found.pairs, longest[: 150 * int(task[-1])])
        np.testing.assert_array_equal(found.X, one["bank-iris-clean-5"].X)
        assert found.n_clusters == 3
        assert found.X_unseen is None
    # One mind: who answers more pairs takes the items for the same.
    np.testing.assert_array_equal(one["bank-iris-mind-1"].similar, one["bank-iris-mind-5"].similar[:150])
    assert not np.array_equal(tasks.load("bank-iris-clean-5", 2).pairs, longest)
    np.testing.assert_array_equal(tasks.load("bank-iris-mind-2", 1).similar, one["bank-iris-mind-2"].similar)


def test_of_large_data_sets_each_trial_draws_its_items(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2600, 2)), np.arange(2600) % 6
    np.savez(tmp_path / "satellite.npz", X=X, y=y)
    np.savez(tmp_path / "dna.npz", X=X, y=y)
    unseen = {"X_unseen": X[:5], "y_unseen": y[:5]}
    np.savez(tmp_path / "cifar10n.npz", X_seen=X, y_seen=y, human_worse=y[::-1], **unseen)
    np.savez(tmp_path / "labelme.npz", X_seen=X[:50], y_seen=y[:50], answers=np.zeros((50, 2)), **unseen)
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    first, other, again = (tasks.load("bank-satellite-clean-1", trial) for trial in (0, 1, 0))
    assert first.X.shape == (2500, 2)
    assert len(np.unique(first.X, axis=0)) == 2500
    assert not np.array_equal(first.X, other.X)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.X, tasks.load("bank-satellite-mind-5", 0).X)
    assert tasks.load("bank-cifar10n-clean-1", 0).X.shape == (2500, 2)
    assert tasks.load("bank-cifar10n-clean-1", 0).flip_rate == 0.0  # the true labels answer, not people's
    assert len(tasks.load("bank-dna-clean-1", 0).X) == 2600
    assert len(tasks.load("bank-labelme-clean-1", 0).X) == 50


def test_tables_come_in_their_own_units(monkeypatch):
    X, y = datasets.table("wine")
    assert X.shape == (178, 13)
    assert X.std(axis=0).max() > 300 > 1 > X.std(axis=0).min()
    assert np.bincount(y).tolist() == [59, 71, 48]
    with pytest.raises(ValueError, match=r"name: expected one of wine, .* found 'beer'"):
        datasets.table("beer")
    monkeypatch.delenv("PDCC_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"vowel\.npz"):
        datasets.table("vowel")


def test_two_halves_make_the_bank():
    a, b = (presets.PRESETS[f"bank-{half}"].tasks for half in "ab")
    assert set(a) | set(b) == set(presets.PRESETS["bank"].tasks)
    assert not set(a) & set(b)
    assert len(a) + len(b) == 9 * 6 * 3
    assert [bank.half_of(d) for d in ("labelme", "dna")] == ["A", "B"]
    assert tasks.has_annotators("bank-dna-eight-1")
    assert not tasks.has_annotators("bank-dna-mind-1")


def small(kind):
    """A method that trains for a moment."""
    return methods.Method(
        kind.__name__, lambda k, s, c: kind(k, random_state=s, epochs=2, hidden=(8,), scale=None, progress=False)
    )


@pytest.fixture
def quick(monkeypatch):
    made = methods.METHODS | {"vanilla": small(VanillaDCC), "volmax": small(VolMaxDCC)}
    for module in (cells, bank_summary, tables, presets):
        monkeypatch.setattr(module, "METHODS", made)
    monkeypatch.delenv("PDCC_DATA", raising=False)


@pytest.mark.slow
def test_the_bank_runs_and_reports_what_it_ran(quick, tmp_path):
    args = ["bench", "bank", "-o", str(tmp_path), "--only", "iris", "--only", "1", "--only", "clean", "--only", "eight"]
    out = CliRunner().invoke(app, [*args, "--trials", "1"])
    assert out.exit_code == 0, out.exception
    rows = pd.read_csv(tmp_path / "cells.csv")
    assert set(rows["task"]) == {"bank-iris-clean-1", "bank-iris-eight-1"}
    assert set(rows["method"]) == set(presets.PRESETS["bank"].methods)
    assert (rows["status"] == "done").all()
    found = pd.read_csv(tmp_path / "differences.csv")
    of = rows[rows["task"] == "bank-iris-clean-1"].set_index("method")["acc_seen"]
    classical = [m for m in of.index if "means" in m]
    assert len(classical) == 6
    clean = found[found["kind"] == "clean"].iloc[0]
    assert clean["over_oracle"] == pytest.approx(of["volmax"] - of[classical].max())
    assert clean["over_vanilla"] == pytest.approx(of["volmax"] - of["vanilla"])
    one = tasks.load("bank-iris-clean-1", 0)
    plain = methods.KMeans(3, scale="standard", random_state=0).fit(one.X, one.pairs, one.similar).labels_
    assert of["kmeans-standard"] == acc(one.truth[0], plain)
    assert pd.read_csv(tmp_path / "bank.csv")["data"].tolist() == ["iris", "half A", "all"]
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    # The default's record says why it chose what it did: a fall back to the start is read from there.
    assert rows[rows["method"] == "volmax"]["message"].str.contains("K-means; .*confusion").all()
    again = CliRunner().invoke(app, [*args, "--report"])
    assert again.exit_code == 0
    assert again.stdout == out.stdout
    assert "| iris | 2 |" in again.output


def test_data_that_is_not_there_is_skipped_and_told(quick, tmp_path, caplog):
    presets.bench("bank", tmp_path, only=("1", "clean"), methods=("kmeans-unit",), trials=1)
    ran = {tasks.data_of(task) for task in pd.read_csv(tmp_path / "cells.csv")["task"]}
    assert ran == {"bank-digits", "bank-wine", "bank-breast_cancer", "bank-iris"}
    (told,) = [m for m in caplog.messages if m.startswith("skipped")]
    assert "skipped satellite, labelme, vowel, dna, cifar10n: PDCC_DATA is not set" in told
    with pytest.raises(FileNotFoundError, match="PDCC_DATA is not set"):
        presets.bench("bank", tmp_path, only=("dna",), trials=1)


def test_only_combines_places_and_lists_what_there_is(tmp_path):
    every = bank.bank_tasks()
    some = presets._having(every, ("wine", "iris", "mind"))
    assert some == tuple(f"bank-{d}-mind-{r}" for d in ("wine", "iris") for r in (1, 2, 5))
    assert presets._having(every, ()) == every
    assert presets._having(presets.PRESETS["quick"].tasks, ("05",)) == ("digits-machine-05",)
    with pytest.raises(ValueError, match=r"only: expected one of bank, wine.*found 'minds'\. Did you mean mind\?"):
        presets.bench("bank", tmp_path, only=("minds",))


def test_an_oracle_stands_for_what_it_is_the_best_of(quick, tmp_path):
    presets.bench("bank", tmp_path, only=("iris", "clean", "1"), methods=("kmeans-oracle", "kmeans-unit"), trials=1)
    rows = pd.read_csv(tmp_path / "cells.csv")
    assert rows["method"].tolist() == ["kmeans-standard", "kmeans-unit", "kmeans-unscaled"]
    assert "The default was not run." in (tmp_path / "table.md").read_text()


ROWS = {
    # task: the default, standardised K-means, the best of the other classical ones, VanillaDCC, seconds, message
    ("bank-wine-mind-1", 0): (0.80, 0.70, 0.90, 0.70, 2.0, "a start; {}; Fell back to the start."),
    ("bank-wine-mind-1", 1): (0.80, 0.70, 0.77, 0.83, 4.0, "a start; {}; Chose."),
    ("bank-dna-clean-5", 0): (0.60, 0.61, 0.50, 0.60, 6.0, "a start; {}; Chose."),
}


def made_up():
    out = []
    for (task, trial), (default, standard, other, vanilla, seconds, message) in ROWS.items():
        reached = dict.fromkeys((*methods.KMEANS_SCALINGS, *methods.PCK_MEANS_SCALINGS), 0.3)
        reached |= {"kmeans-standard": standard, "pck-means-unit": other, "vanilla": vanilla, "volmax": default}
        for method, value in reached.items():
            out.append(
                {"task": task, "method": method, "trial": trial, "seed": 0, "status": "done", "acc_seen": value, "peak_mb": 9.0}
                | {"seconds": seconds if method == "volmax" else 1.0, "message": message if method == "volmax" else ""}
                | {"date": "2024-05-06", "versions": {"torch": "2"}, "source": "x"}
            )  # fmt: skip
    return out


def test_the_summary_by_hand():
    found = bank_summary.compare_cells(made_up())
    np.testing.assert_allclose(found["over_oracle"], [-0.10, 0.03, -0.01])
    np.testing.assert_allclose(found["over_standard"], [0.10, 0.10, -0.01])
    np.testing.assert_allclose(found["over_vanilla"], [0.10, -0.03, 0.0], atol=1e-12)
    table = bank_summary.summarise_cells(found, "data").set_index("data")
    assert table.index.tolist() == ["wine", "dna", "half A", "half B", "all"]
    gaps = np.array([-0.10, 0.03, -0.01])
    assert table.loc["all", "over_oracle"] == pytest.approx(gaps.mean())
    assert table.loc["all", "over_oracle_se"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert np.isnan(table.loc["dna", "over_oracle_se"])
    assert table.loc["wine", "over_oracle_behind"] == 0.5
    assert table.loc["half B", "over_oracle_behind"] == 0.0
    assert table.loc["all", "over_vanilla_behind"] == pytest.approx(1 / 3)
    assert table.loc["wine", ["fell_back", "seconds"]].tolist() == [0.5, 3.0]
    assert bank_summary.summarise_cells(found, "kind")["kind"].tolist() == ["mind", "clean", "all"]
    assert bank_summary.summarise_cells(found, "ratio")["cells"].tolist() == [2, 1, 3]
    worst = bank_summary.far_behind(found)
    assert worst[["task", "trial"]].to_numpy().tolist() == [["bank-wine-mind-1", 0]]


def test_the_report_names_the_worst_cells_and_failures(tmp_path):
    records = made_up()
    text = bank_summary.bank_tables(records)
    assert "| bank-wine-mind-1 | 0 | 0.800 | -0.100 | +0.100 | yes |" in text
    assert (
        "| wine | 2 | 0.800 | -0.035 ± 0.065 | 50% | +0.100 ± 0.000 | 0% | +0.035 ± 0.065 | 50% | 50% | 3.0 |" in text
    )
    assert "| ACC | wine | dna |" in text
    assert "| pck-means-oracle | 0.835 | 0.500 |" in text
    last = records[-1]
    assert (last["task"], last["method"]) == ("bank-dna-clean-5", "volmax")
    failed = [*records[:-1], last | {"status": "failed", "message": "ValueError: no solution"}]
    text = bank_summary.write_bank_report(failed, tmp_path, "Bank")
    assert "| half B |" not in text
    assert "The default failed in 1 further cells" in text
    assert "- bank-dna-clean-5, volmax, trial 0: ValueError: no solution" in text
    # Without one of its methods there is no oracle: half of a comparison would flatter.
    part = [r for r in records if r["method"] != "pck-means-unscaled"]
    assert bank_summary.compare_cells(part)["over_oracle"].isna().all()
    assert "| not run |" in bank_summary.bank_tables(part)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x; {}; Fell back to the start: the answers contradict it.", True),
        ("x; {}; Kept the start, since nothing was gained.", True),
        ("unit scale, plain K-means; {}; Chose confusion none: it predicts held-out answers best.", False),
    ],
)
def test_a_fall_back_is_read_from_the_message(message, expected):
    assert bool(bank_summary.FELL_BACK.search(message)) == expected


def test_differences_are_drawn_sorted_and_coloured_by_data():
    rows = pd.DataFrame({"data": ["a", "b", "a", "b"], "difference": [0.2, -0.1, 0.0, np.nan]})
    ax = plots.plot_differences(rows)
    ax.figure.canvas.draw()
    heights = {round(bar.get_x() + 0.5): (bar.get_height(), bar.get_facecolor()) for bar in ax.patches}
    assert [heights[k][0] for k in range(3)] == [-0.1, 0.0, 0.2]
    assert heights[1][1] == heights[2][1] != heights[0][1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert ax.get_title() == "ahead in 1 cells, behind in 1, level in 1"
    assert plots.plot_differences(rows[:0], ax=ax) is ax


@pytest.mark.skipif(datasets.data_directory() is None, reason="PDCC_DATA is not set")
@pytest.mark.parametrize("name", bank.DATA)
def test_tasks_of_every_data_set_load(name):
    for task in bank.bank_tasks((name,)):
        one = tasks.load(task, 0)
        assert len(one.pairs) == int(task[-1]) * len(one.X)
        assert len(one.X) <= bank.MOST_ITEMS or name == "dna"
        assert (one.annotators is not None) == ("eight" in task)
        assert (one.flip_rate == 0.0) == ("clean" in task)
        assert set(one.truth[0]) == set(range(one.n_clusters))
