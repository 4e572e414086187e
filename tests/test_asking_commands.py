"""pdcc suggest, audit and annotators on a run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pdcc.cli import main
from pdcc.data.places import told_apart


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Sixty items called =n0 and so on, 300 answers of two annotators."""
    place = tmp_path_factory.mktemp("asking")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    names = [f"=n{k}" for k in range(60)]
    table = pd.DataFrame(4 * np.eye(3)[y] + rng.normal(size=(60, 3)), columns=list("abc"))
    table.assign(id=names).to_csv(place / "features.csv", index=False)
    i = rng.integers(60, size=300)
    j = (i + 1 + rng.integers(59, size=300)) % 60
    similar = (y[i] == y[j]) ^ (rng.random(300) < 0.1)
    who = np.where(np.arange(300) % 3 == 0, "ann", "bob")
    pairs = pd.DataFrame(
        {"i": [names[k] for k in i], "j": [names[k] for k in j], "similar": similar.astype(int), "annotator": who}
    )
    pairs.to_csv(place / "pairs.csv", index=False)
    options = ["--epochs", "3", "--scale", "standard", "--confusion", "pooled", "--volume", "0", "--id-column", "id"]
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "-q",
                "fit",
                str(place / "features.csv"),
                str(place / "pairs.csv"),
                "-k",
                "3",
                "-o",
                str(place / "run"),
                *options,
            ]
        )
    assert not stop.value.code
    return place


def test_suggest_writes_pairs_and_says_what_to_expect(run, capsys):
    code, out, _ = call(capsys, "-q", "suggest", run / "run", "-n", 20, "-o", run / "next.csv", "--new")
    assert code == 0
    assert "stop if that is not worth it" in out
    table = pd.read_csv(run / "next.csv")
    assert list(table.columns) == ["i", "j", "gain", "chosen_by", "probability"]
    assert len(table) == 20
    assert (table["chosen_by"] == "random").sum() >= 4
    asked = {frozenset(p) for p in pd.read_csv(run / "pairs.csv")[["i", "j"]].to_numpy().tolist()}
    assert not asked & {frozenset(p) for p in table[["i", "j"]].to_numpy().tolist()}
    code, _, err = call(capsys, "-q", "suggest", run / "run", "--aim", "x")
    assert (code, err.split(":")[1].strip()) == (2, "--aim")


def test_audit_writes_every_answer_most_doubtful_first(run, capsys):
    code, out, _ = call(capsys, "-q", "audit", run / "run", "-o", run / "doubtful.csv", "--safe-csv")
    assert code == 0
    assert "of 300 answers are wrong" in out
    table = pd.read_csv(run / "doubtful.csv")
    assert sorted(table["answer"]) == list(range(300))
    assert table["wrong"].is_monotonic_decreasing
    assert table["i"].str.startswith("'=").all()  # as a spreadsheet may open it
    given = pd.read_csv(run / "pairs.csv").loc[table["answer"]]
    assert table["annotator"].tolist() == given["annotator"].tolist()


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["diagnose", "--quick", "--draws", "2", "-o", "first", "--items", "second"], ["first", "second"]),
        (["suggest", "-n", "20", "-o", "first"], ["first"]),
        (["suggest", "-n", "20", "--trusted", "-o", "first"], ["first"]),
        (["audit", "-o", "first"], ["first"]),
        (["annotators", "-o", "first"], ["first"]),
        (["report", "--quick", "-o", "first"], ["first"]),
    ],
)
def test_files_are_written_before_anything_is_printed(run, capsys, tmp_path, monkeypatch, words, files):
    """As where the output goes to ``head``, which has read enough."""

    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("typer.echo", closed)
    monkeypatch.setattr("pdcc.cli.complain", lambda *_: None)
    given = [tmp_path / word if word in files else word for word in words[1:]]
    call(capsys, "-q", words[0], run / "run", *given)
    assert [name for name in files if (tmp_path / name).stat().st_size] == files


def test_annotators_are_listed(run, capsys):
    code, out, _ = call(capsys, "-q", "annotators", run / "run")
    assert code == 0
    assert "ann" in out
    assert "reliability" in out


def test_results_do_not_replace_the_features(run, capsys):
    before = (run / "features.csv").read_bytes()
    code, _, err = call(capsys, "-q", "audit", run / "run", "-o", run / "features.csv")
    assert code == 2
    assert "features.csv" in err
    assert (run / "features.csv").read_bytes() == before


def test_suggest_draws_pairs_for_someone_to_trust(run, capsys):
    code, _, _ = call(capsys, "-q", "suggest", run / "run", "-n", 40, "-o", run / "check.csv", "--trusted")
    assert code == 0
    table = pd.read_csv(run / "check.csv")
    assert list(table.columns) == ["i", "j", "probability"]
    assert len(table) == 40
    assert table["i"].str.startswith("=").all()  # by their ids
    code, _, err = call(capsys, "-q", "suggest", run / "run", "--trusted", "--new")
    assert code == 2
    assert "--trusted: expected neither --aim nor --new" in err


def test_audit_counts_rows_as_the_files_have_them(run, capsys, tmp_path):
    """Beside rows that are unsure, unreadable, of one item or of weight 0, and with a second file of answers."""
    given = pd.read_csv(run / "pairs.csv").assign(weight=1.0)
    first, more = given[:200].astype({"similar": object}), given[200:].astype({"similar": object})
    first.loc[[3, 50], "similar"] = ["unsure", "perhaps"]
    first.loc[70, "i"] = first.loc[70, "j"]
    first.loc[90, "weight"] = 0
    more.loc[210, "similar"] = "skip"
    first.to_csv(tmp_path / "first.csv", index=False)
    more.to_csv(tmp_path / "more.csv", index=False)
    quick = ["--epochs", 2, "--confusion", "pooled", "--volume", 0, "--init", "kmeans", "--scale", "standard"]
    words = ["fit", run / "features.csv", tmp_path / "first.csv", "-k", 3, "-o", tmp_path / "run", "--id-column", "id"]
    assert call(capsys, "-q", *words, "--skip-unreadable", *quick)[0] == 0
    assert call(capsys, "-q", "audit", tmp_path / "run", "-o", tmp_path / "doubtful.csv")[0] == 0
    table = pd.read_csv(tmp_path / "doubtful.csv")
    assert "file" not in table
    assert sorted(table["answer"]) == sorted(set(range(200)) - {3, 50, 70, 90})
    then = first.loc[table["answer"]]
    assert (table["i"].tolist(), table["j"].tolist()) == (then["i"].tolist(), then["j"].tolist())
    words = ["fit", "--from", tmp_path / "run", "--add", tmp_path / "more.csv", "-o", tmp_path / "run2"]
    assert call(capsys, "-q", *words, "--epochs", 2)[0] == 0
    assert call(capsys, "-q", "audit", tmp_path / "run2", "-o", tmp_path / "doubtful.csv")[0] == 0
    table = pd.read_csv(tmp_path / "doubtful.csv").set_index("file")
    files = {"first.csv": first, "more.csv": more.reset_index(drop=True)}
    assert set(table.index) == set(files)
    for file, rows in files.items():
        then = rows.loc[table.loc[file, "answer"]]
        assert table.loc[file, "i"].tolist() == then["i"].tolist()
    assert len(table) == 196 + 99


def test_answers_made_of_labels_have_no_rows(run, capsys, tmp_path):
    """Each is made of two rows of the file: the run counts its answers, also those of a table that is added."""
    names = pd.read_csv(run / "features.csv")["id"]
    labels = pd.DataFrame({"task": names, "worker": np.arange(60) % 3, "label": np.arange(60) // 3 % 2})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    quick = ["--epochs", 2, "--confusion", "pooled", "--volume", 0, "--init", "kmeans", "--scale", "standard"]
    words = ["fit", run / "features.csv", tmp_path / "labels.csv", "-k", 3, "-o", tmp_path / "run", "--id-column", "id"]
    assert call(capsys, "-q", *words, *quick)[0] == 0
    added = ["-o", tmp_path / "run2", "--epochs", 1]
    assert call(capsys, "-q", "fit", "--from", tmp_path / "run", "--add", run / "pairs.csv", *added)[0] == 0
    for name, n in (("run", 3 * 190), ("run2", 3 * 190 + 300)):
        assert "answer_places" not in json.loads((tmp_path / name / "run.json").read_text())
        assert call(capsys, "-q", "audit", tmp_path / name, "-o", tmp_path / "doubtful.csv")[0] == 0
        table = pd.read_csv(tmp_path / "doubtful.csv")
        assert sorted(table["answer"]) == list(range(n))
        assert "file" not in table
    assert (
        call(capsys, "-q", "fit", "--from", run / "run", "--add", tmp_path / "labels.csv", *added, "--overwrite")[0]
        == 0
    )
    assert "answer_places" not in json.loads((tmp_path / "run2" / "run.json").read_text())


def test_files_of_one_name_are_told_apart(run, capsys, tmp_path, monkeypatch):
    """Each is given as c.csv, from a directory of its own; another name needs no directory."""
    given = pd.read_csv(run / "pairs.csv")
    parts = {"one": given[:150], "two": given[150:250], "three": given[250:]}
    for name, rows in parts.items():
        (tmp_path / name).mkdir()
        rows.to_csv(tmp_path / name / ("d.csv" if name == "three" else "c.csv"), index=False)
    quick = ["--epochs", 2, "--confusion", "pooled", "--volume", 0, "--init", "kmeans", "--scale", "standard"]
    monkeypatch.chdir(tmp_path / "one")
    words = ["fit", run / "features.csv", "c.csv", "-k", 3, "-o", tmp_path / "run", "--id-column", "id"]
    assert call(capsys, "-q", *words, *quick)[0] == 0
    monkeypatch.chdir(tmp_path / "two")
    words = ["fit", "--from", "../run", "--add", "c.csv", "--add", "../three/d.csv", "-o", "../run2", "--epochs", 1]
    assert call(capsys, "-q", *words)[0] == 0
    assert call(capsys, "-q", "audit", "../run2", "-o", "doubtful.csv")[0] == 0
    table = pd.read_csv("doubtful.csv").set_index("file")
    files = {str(Path("one/c.csv")): "one", str(Path("two/c.csv")): "two", "d.csv": "three"}
    assert set(table.index) == set(files)
    for file, name in files.items():
        found = table.loc[file]
        assert sorted(found["answer"]) == list(range(len(parts[name])))
        assert found["i"].tolist() == parts[name]["i"].to_numpy()[found["answer"]].tolist()


def test_paths_are_shown_by_the_shortest_end_that_no_other_has():
    paths = ["/c.csv", "/a/c.csv", "/b/a/c.csv", "/b/d.csv", "/b/e.csv"]
    shown = told_apart([str(Path(path)) for path in paths])
    assert list(shown.values()) == [str(Path(path)) for path in ("/c.csv", "/a/c.csv", "b/a/c.csv", "d.csv", "e.csv")]
    assert told_apart(["/a/c.csv"]) == {"/a/c.csv": "c.csv"}
