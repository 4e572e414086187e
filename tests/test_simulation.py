"""Simulation studies: settings with the truth they claim, resumable, and judged as the summary says."""

import json

import numpy as np
import pandas as pd
import pytest

from pdcc import VolMaxDCC, check_ssc, datasets, metrics
from pdcc.annotators import draw_pairs
from pdcc.cli import main
from pdcc.experiments import identifiability_bank, synthetic
from pdcc.experiments.identifiability_bank import RECOVERED, Setting, bank, run_bank, run_cell, simulate, summarise


def test_scatter_is_what_the_setting_says():
    for scatter in (1.0, 0.6):
        F = simulate(Setting(3, scatter, 500, "none", "none", "independent", 0)).memberships
        found = check_ssc(F, gap=0.01)
        assert found.rho_lb - 0.02 <= scatter <= found.rho_ub + 0.02


def test_twins_differ_in_truth_and_not_in_likelihood():
    one, two = (simulate(Setting(4, 1.0, 400, "mild", "sigmoid", "independent", 7, t)) for t in ("squeezed", "spread"))
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.similar, two.similar)
    seen = [d.memberships @ d.confusion.T for d in (one, two)]
    np.testing.assert_allclose(seen[0] @ seen[0].T, seen[1] @ seen[1].T, atol=1e-12)
    assert np.abs(one.memberships - two.memberships).max() > 0.1


def test_transitive_noise_never_contradicts_itself():
    data = simulate(Setting(3, 0.8, 4000, "mild", "sigmoid", "transitive", 1))
    same = {tuple(sorted(p)): s for p, s in zip(data.pairs.tolist(), data.similar.tolist(), strict=True)}
    similar = [p for p, s in same.items() if s]
    group = {}
    for a, b in similar:  # union-find over "similar" answers
        group.setdefault(a, a), group.setdefault(b, b)
        while group[a] != a:
            a = group[a]
        while group[b] != b:
            b = group[b]
        group[a] = b

    def root(a):
        while group.get(a, a) != a:
            a = group[a]
        return a

    assert all(root(a) != root(b) for (a, b), s in same.items() if not s)


def test_the_bank_is_balanced_as_promised():
    settings = bank(204, 0)
    assert len(settings) == 204
    assert len({s.name for s in settings}) == 204
    assert {s.n_clusters for s in settings} == {3, 5, 8}
    assert np.mean([0.6 <= s.scatter <= 0.98 or s.twin == "squeezed" for s in settings]) > 1 / 3
    assert {s.noise for s in settings} == {"independent", "transitive"}
    assert {s.confusion for s in settings} == {"none", "mild", "strong", "deficient"}
    twins = [s for s in settings if s.twin]
    assert len(twins) >= 10
    assert sum(s.twin == "squeezed" for s in twins) == len(twins) / 2
    assert bank(204, 0) == settings
    assert not {s.seed for s in settings} & {s.seed for s in bank(120, 900)}


def test_a_bank_goes_on_where_it_was_and_shows_failures(tmp_path, monkeypatch):
    settings = bank(4, 3)
    calls = []

    def cell(setting):
        calls.append(setting.name)
        if setting == settings[2]:
            raise RuntimeError("broken")
        row = {"name": setting.name, "seed": 1, "form": setting.form, "noise": setting.noise, "twin": setting.twin}
        return row | {
            "true_rho": 1.0,
            "mse": 0.01,
            "recovered": True,
            "overall": "supported",
            "conditional": False,
            "score": 0.9,
        }

    monkeypatch.setattr(identifiability_bank, "run_cell", cell)
    path = tmp_path / "bank.jsonl"
    run_bank(settings[:2], path)
    with path.open("a") as file:
        file.write('{"name": "cut o')  # killed while writing
    rows = run_bank(settings, path)
    assert calls == [s.name for s in settings]
    assert [r["name"] for r in rows] == calls
    assert "RuntimeError: broken" in rows[2]["error"]
    assert json.loads(path.read_text().splitlines()[0])["name"] == settings[0].name


def test_the_summary_counts_what_it_says():
    base = {"seed": 1, "form": "none", "noise": "independent", "twin": None, "true_rho": 1.0, "conditional": False}
    rows = [base | {"recovered": r, "score": s, "overall": o, "mse": 0.01} for r, s, o in (
        (True, 0.9, "supported"), (False, 0.8, "supported"), (False, 0.1, "not supported"), (True, 0.6, "cannot tell"))]  # fmt: skip
    rows.append(base | {"form": "sigmoid", "recovered": True, "score": 0.95, "overall": "supported", "mse": 0.01})
    table = summarise([*rows, {"error": "broken"}]).set_index("group")
    none = table.loc["no confusion"]
    assert none["settings"] == 4
    assert none["AUC"] == pytest.approx(0.75)
    assert none["of which recovered"] == pytest.approx(0.5)
    assert none["cannot tell"] == pytest.approx(0.25)
    assert table.loc["confusion, true rho >= .95", "unconditional"] == 1
    assert table.loc["all", "settings"] == 5


def test_one_cell_end_to_end():
    row = run_cell(Setting(3, 1.0, 3000, "none", "none", "independent", 5))
    assert row["recovered"] == (row["mse"] <= RECOVERED)
    assert row["overall"] == row["diagnosis"]["verdicts"]["memberships"]
    assert 0.95 < row["true_rho"] <= 1.001
    json.dumps(row)


def test_the_paper_study_from_the_shell(tmp_path, monkeypatch, capsys):
    ran, whole = [], synthetic.run_cell
    run_study = synthetic.run_study
    # All volumes of the paper, from 1,000 to 10,000 pairs by 1,000; 5 trials of the clean figure and 10 of the noisy one.
    assert {float(v) for v in synthetic.VOLUMES} == {0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1}
    assert (synthetic.PAIRS[0], synthetic.PAIRS[-1], len(synthetic.PAIRS)) == (1000, 10_000, 10)
    assert synthetic.TRIALS == {"clean": 5, "noisy": 10}
    monkeypatch.setattr(synthetic, "METHODS", dict(list(synthetic.METHODS.items())[:2]))
    monkeypatch.setattr(synthetic, "FITTED", synthetic.FITTED | {"epochs": 2, "hidden": (8,)})
    monkeypatch.setattr(run_study, "__kwdefaults__", run_study.__kwdefaults__ | {"pairs": (200, 400)})
    monkeypatch.setattr(synthetic, "run_cell", lambda cell: ran.append(cell) or whole(cell))
    for _ in range(2):  # the second run finds everything done
        with pytest.raises(SystemExit) as stop:
            main(["simulate", "synthetic", "-o", str(tmp_path), "--size", "2"])
        assert stop.value.code == 0
    table = pd.read_csv(tmp_path / "synthetic.csv")
    cells = [(m, n, (0, 1)) for n in (200, 400) for m in synthetic.METHODS]
    assert ran == cells
    trials = [(m, n, s) for m, n, seeds in cells for s in seeds]
    assert list(zip(table["method"], table["pairs"], table["seed"], strict=True)) == trials
    again = whole(cells[3])["trials"][1]
    assert table.iloc[7][["seen", "unseen"]].tolist() == pytest.approx([again["seen"], again["unseen"]])
    for figure in ("clean", "noisy"):
        assert (tmp_path / f"synthetic-{figure}.png").read_bytes().startswith(b"\x89PNG")
    middle = table[(table["method"] == "clean: Vanilla") & (table["pairs"] == 200)]["seen"].median()
    (line,) = [s for s in capsys.readouterr().out.splitlines()[-5:] if "clean: Vanilla" in s and " 200 " in s]
    assert f"{middle:.4f}" in line


def test_either_figure_has_its_own_number_of_trials(tmp_path, monkeypatch):
    def quick(cell):
        method, pairs, seeds = cell
        return {"method": method, "pairs": pairs, "trials": [{"seed": s, "seen": 0.1, "unseen": 0.2} for s in seeds]}

    monkeypatch.setattr(synthetic, "run_cell", quick)
    table = synthetic.run_study(tmp_path, trials={"clean": 1, "noisy": 3}, seed=4, pairs=(10, 20))
    clean = table["method"].str.startswith("clean")
    assert sorted(table[clean]["seed"]) == [4, 4]
    assert sorted(set(table[~clean]["seed"])) == [4, 5, 6]
    assert set(synthetic.medians(table)["seeds"]) == {1, 3}
    assert set(table[~clean]["method"]) == set(synthetic.METHODS) - {"clean: Vanilla"}
    ran = []
    monkeypatch.setattr(synthetic, "run_cell", lambda cell: ran.append(cell) or quick(cell))
    synthetic.run_study(tmp_path, trials={"clean": 2, "noisy": 3}, seed=4, pairs=(10, 20))
    assert ran == [("clean: Vanilla", 10, (5,)), ("clean: Vanilla", 20, (5,))]  # only what is not on record
    old = {
        "method": "clean: Vanilla",
        "pairs": 30,
        "seed": 4,
        "seen": 0.3,
        "unseen": 0.4,
    }  # once each trial had a record
    (tmp_path / "synthetic.jsonl").write_text(json.dumps(old) + "\n")
    again = synthetic.run_study(tmp_path, trials={"clean": 1, "noisy": 0}, seed=4, pairs=(30,))
    assert again["seen"].tolist() == [0.3]


def test_trials_at_once_end_where_the_estimator_takes_them(monkeypatch):
    """Other rounding, 10 epochs of it: 1e-3 at most."""
    monkeypatch.setattr(synthetic, "FITTED", synthetic.FITTED | {"epochs": 10, "hidden": (16,)})
    method = "noisy: paper's B, volume 1e-2"
    found = synthetic.run_cell((method, 600, (3, 5)))["trials"]
    for row in found:
        data = datasets.synthetic(2000, "paper", row["seed"])
        answers = data.answers(600, row["seed"])
        est = VolMaxDCC(3, confusion="sigmoid-paper", volume=1e-2, random_state=row["seed"], **synthetic.FITTED)
        est.fit(data.X[:1000], answers.pairs, answers.similar)
        assert row["seen"] == pytest.approx(metrics.membership_mse(data.memberships[:1000], est.memberships_), rel=1e-3)
    assert found[0]["seen"] != pytest.approx(found[1]["seen"], rel=0.01)


def test_the_bank_of_labels_has_known_truth_and_is_summarised(tmp_path):
    from pdcc.experiments import labels_bank as b

    rng = np.random.default_rng(0)
    for name in ("blobs5", "uneven5", "soft6", "iris"):
        X, y, F = b.features(name, 1300, rng)
        assert len(X) == len(y) == len(F)
        np.testing.assert_array_equal(F.argmax(axis=1), y)
        assert (F.max(axis=1) < 1).any() == (name == "soft6")
    X, y, F = b.features("iris", 1300, rng)
    pairs = draw_pairs(len(y), 300, rng)
    wrong = {kind: make((X, y, F, pairs, rng)).flip_rate for kind, make in b.KINDS.items()}
    assert all(0.01 < rate < 0.35 for rate in wrong.values()), wrong
    assert not {s.data for s in b.settings("A", None, 0)} & {s.data for s in b.settings("B", None, 0)}
    row = b.run_cell(b.Setting("iris", "flips10", 2, 0), quick=True)
    assert row["n_pairs"] == 300
    assert 0 <= row["ece"] <= 1
    assert row["flagged"] == (row["estimate"] is None)
    table = b.summarise([row, row | {"kind": "mind", "flagged": True, "estimate": None}])
    assert table.set_index("answers").loc["independent", "settings"] == 1
    assert b.ece(np.array([0.9, 0.9]), np.array([True, False])) == pytest.approx(0.4)
