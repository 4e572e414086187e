"""Answers from files: every dialect, and no row lost in silence."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import pdcc, triples, written
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pdcc import PairAnswers, PairData, PairDataError, VolMaxDCC, read_answers
from pdcc.data.words import DIFFERENT, SAME, UNSURE
from pdcc.storage import run as runs

FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize(
    "word",
    [*SAME, *DIFFERENT, *UNSURE, "Yes", " SAME ", "Don\N{RIGHT SINGLE QUOTATION MARK}t  know", "1.0", "-1", "+1"],
)
def test_words(tmp_path, word):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["i", "j", "similar"], [0, 1, word], [2, 3, "yes"]])
    read = read_answers(path)
    known = {"1.0": True, "-1": False, "+1": True, "Yes": True, " SAME ": True}
    expected = known.get(word, word in SAME if word in SAME + DIFFERENT else None)
    assert read.frame.similar.tolist() == ([True] if expected is None else [expected, True])
    assert len(read.unsure) == (expected is None)


DIALECTS = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from([",", ";", "\t"]),
        "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"]),
        "words": st.sampled_from([("yes", "no"), ("Same", "DIFFERENT"), ("1", "0"), ("1", "-1"), ("must-link", "cannot-link")]),
        "names": st.sampled_from([("i", "j", "similar", "annotator"), ("Left", "Right", "Answer", "Rater"), ("id_l", "id_r", "label", "user")]),
        "quoting": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        "end": st.sampled_from(["\n", "\r\n"]),
        "order": st.permutations(range(5)),
    }
)  # fmt: skip
# What Latin-1 holds, quotation marks and line ends included; trimmed, and no empty name.
NAMES = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f\x85"), min_size=1, max_size=5
).map(lambda s: "n" + s.strip())


def _is_utf_8(content: bytes) -> bool:
    """Whether bytes with accents in Latin-1 are whole letters of UTF-8 too, which is then what they are taken for."""
    try:
        return not content.decode("utf-8").isascii()
    except UnicodeDecodeError:
        return False


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, NAMES, st.sampled_from([True, False, "unsure", "maybe"]), st.one_of(NAMES, st.sampled_from(["a\nb", "NA", "inf", "007"]))),
        min_size=1, max_size=12,
    ),
    DIALECTS,
)  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory, rows, how):
    """Rows in = answers + unsure + unreadable, each as it was written; pairs of an item with itself are answers still."""
    said = {True: how["words"][0], False: how["words"][1]}
    cells = [[*how["names"], "comment, of one"], *([i, j, said.get(s, s), who, "x;y"] for i, j, s, who in rows)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=how["delimiter"], quoting=how["quoting"], lineterminator=how["end"])
    writer.writerows([[row[k] for k in how["order"]] for row in cells])
    assume(how["encoding"] != "latin-1" or not _is_utf_8(text.getvalue().encode("latin-1")))
    path = written(tmp_path_factory.mktemp("dialect") / "a.csv", text.getvalue(), how["encoding"])
    bad = [row for row, (_, _, s, _) in enumerate(rows) if s == "maybe"]
    if bad:
        with pytest.raises(PairDataError, match=f"row {bad[0]}, similar: 'maybe'"):
            read_answers(path)
    read = read_answers(path, skip_unreadable=True)
    found = [tuple(row) for row in read.frame[["i", "j", "similar", "annotator"]].itertuples(index=False)]
    assert found == [row for row in rows if isinstance(row[2], bool)]
    aside = [tuple(row) for row in read.unsure.itertuples(index=False)]
    assert aside == [(n, *row) for n, row in enumerate(rows) if row[2] == "unsure"]
    assert read.unreadable.row.tolist() == bad
    assert len(found) + len(aside) + len(bad) == read.n_rows == len(rows)
    accented = any(ord(c) > 127 for row in rows for cell in row if isinstance(cell, str) for c in cell)
    assert any("Latin-1" in note for note in read.notes) == (how["encoding"] == "latin-1" and accented)


def test_decimal_commas_grades_and_weights(tmp_path):
    path = written(tmp_path / "a.csv", "left;right;answer;weight\n0;1;0,7;1,5\n1;2;0;2\n0;2;1;0,25\n")
    with pytest.raises(PairDataError, match=r"row 0, similar: '0,7', a graded answer.*--soft \(soft=True"):
        read_answers(path)
    read = read_answers(path, soft=True)
    assert read.frame.similar.tolist() == [0.7, 0, 1]
    assert read.frame.weight.tolist() == [1.5, 2, 0.25]
    data = PairData.from_arrays(np.eye(3), read)
    np.testing.assert_allclose(data.soft, [0.7, 0, 1])
    np.testing.assert_allclose(data.weight, [1.5, 2, 0.25])
    read = read_answers(
        written(tmp_path / "g.tsv", "i\tj\tsimilar\n0\t1\t4\n1\t2\t1\n0\t2\t2\n2\t1\tskip\n"), soft=True
    )
    np.testing.assert_allclose(read.frame.similar, [1, 0, 1 / 3])
    assert any("grades from 1" in note for note in read.notes)
    with pytest.raises(PairDataError, match=r"row 1, weight: '-1', not a number of at least 0"):
        read_answers(written(tmp_path / "w.csv", "i,j,similar,weight\n0,1,1,1\n0,2,0,-1\n"))
    with pytest.raises(PairDataError, match="0 beside -1"):
        read_answers(written(tmp_path / "z.csv", "i,j,similar\n0,1,1\n0,2,-1\n1,2,0\n"))


def test_numbers_are_taken_by_the_whole_column_and_that_is_said(tmp_path):
    """A 1 is a grade beside a 3, a probability beside a half, a sign beside -1; alone it could be either, and is said to be taken as one."""
    for cells, wanted, words in [
        (["1", "3"], [0, 2 / 3], "grades from 1"),
        (["1", "0.5"], [1, 0.5], "Numbers are probabilities"),
        (["1", "-1"], [1, 0], "Numbers are signs"),
        (["1", "no", "unsure"], [1, 0], "All numbers are 1: taken as the probability 1, the same"),
    ]:
        rows = "".join(f"0,{k + 1},{cell}\n" for k, cell in enumerate(cells))
        path = written(tmp_path / "a.csv", f"i,j,similar\n{rows}")
        read = read_answers(path, soft=True)
        np.testing.assert_allclose(read.frame.similar.astype(float), wanted)
        assert any(words in note for note in read.notes)
        assert read.soft == ("-1" not in cells)
    assert read_answers(path, soft=True, format="durel").frame.similar.tolist() == [0, 0]  # where grades are meant
    path = written(tmp_path / "b.csv", "i,j,similar\n0,1,yes\n0,2,no\n")
    assert (read_answers(path, soft=True).soft, read_answers(path, soft=True).notes) == (False, ())


def test_who_has_no_opinion_may_leave_the_weight_out(tmp_path):
    path = written(tmp_path / "a.csv", "i,j,similar,weight\n0,1,yes,2\n1,2,unsure,\n0,2,no,1\n")
    read = read_answers(path)
    assert (len(read.frame), len(read.unsure), len(read.unreadable)) == (2, 1, 0)
    assert read_answers(path, unsure="half").frame.weight.tolist() == [2, 1, 1]
    for row in ("1,2,yes,", "1,2,unsure,many"):
        with pytest.raises(PairDataError, match="not a number of at least 0"):
            read_answers(written(tmp_path / "b.csv", f"i,j,similar,weight\n0,1,yes,2\n{row}\n"))


def test_columns_are_guessed_and_said_or_told(tmp_path):
    path = written(tmp_path / "a.csv", "A,B,verdict,judgment,who,time\n0,1,no,yes,u,9\n1,2,yes,no,v,9\n")
    read = read_answers(path)
    assert read.frame.similar.tolist() == [True, False]
    assert read.notes == (
        "Columns: i is 'A', j is 'B', similar is 'judgment', annotator is 'who'.",
        "Columns that are ignored: verdict, time.",
    )
    assert read.ignored == ("verdict", "time")
    assert read.frame.annotator.tolist() == ["u", "v"]
    for columns in ("similar=verdict,annotator=time", {"similar": "verdict", "annotator": "time"}):
        read = read_answers(path, columns=columns)
        assert read.frame.similar.tolist() == [False, True]
        assert read.frame.annotator.tolist() == [9, 9]
    assert triples(read_answers(path, columns="i=B,j=A"))[0] == (1, 0, True)
    for columns, words in {
        "similar=nope": r"columns: .*'nope', which is not among A, B",
        "same=verdict": r"columns: expected .*found same=verdict",
        "i=A,j=A": "found j=A",
        "i": "found i=",
    }.items():
        with pytest.raises(PairDataError, match=words):
            read_answers(path, columns=columns)
    with pytest.raises(TypeError, match="columns"):
        read_answers(path, columns=["i"])
    with pytest.raises(PairDataError, match=r"pairs table: .*the columns x, y.*Add i, j, similar.*--columns"):
        read_answers(written(tmp_path / "b.csv", "x,y\n1,2\n"))
    with pytest.raises(PairDataError, match="'similar' more than once"):
        read_answers(written(tmp_path / "c.csv", "i,j,similar,similar\n1,2,1,0\n"))


def test_broken_rows_and_files_are_named(tmp_path):
    path = written(tmp_path / "a.csv", "i,j,similar,annotator\n0,1,1,u\n0,1\n,2,1,u\n1,2,0,\n1,2,?,\n2,3,0,v,9\n")
    with pytest.raises(PairDataError) as caught:
        read_answers(path)
    text = str(caught.value)
    assert caught.value.row == 1
    for words in (
        "6 rows",
        "4 that cannot",
        "row 1, 2 fields instead of 4",
        "row 2, i: an empty cell",
        "row 3, annotator: an empty cell",
        "row 5, 5 fields",
    ):
        assert words in text
    read = read_answers(path, skip_unreadable=True)
    assert read.unreadable.row.tolist() == [1, 2, 3, 5]
    assert (len(read.frame), len(read.unsure), read.n_rows) == (1, 1, 6)
    assert any(note.startswith("4 of 6 rows cannot be read and were left out: row 1,") for note in read.notes)
    # A forgotten quotation mark must not swallow the rows after it.
    with pytest.raises(PairDataError, match=r"readable \.csv file.*quotation mark"):
        read_answers(written(tmp_path / "q.csv", 'i,j,similar,annotator\n0,1,1,"u\n1,2,0,v\n'))
    for name, text, words in [
        ("a.xlsx", "x", "the ending '.xlsx'"),
        ("a.json", "{", "readable .json file"),
        ("b.json", "3", "pairs: expected a list of rows, training of dedupe"),
        ("c.json", '{"a": 1}', "a dict with a"),
        ("empty.csv", "", "the columns none"),
    ]:
        with pytest.raises(PairDataError, match=words):
            read_answers(written(tmp_path / name, text))
    with pytest.raises(PairDataError, match="found none there"):
        read_answers(tmp_path / "nowhere.csv")
    with pytest.raises(PairDataError, match="format: expected what dedupe writes, found a table"):
        read_answers(FILES / "crowdkit.csv", format="dedupe")
    with pytest.raises(PairDataError, match="format: expected what csv writes"):
        read_answers(FILES / "dedupe_training.json", format="csv")
    with pytest.raises(ValueError, match="format: expected one of"):
        read_answers(FILES / "crowdkit.csv", format="excel")


def test_other_files_and_types(tmp_path):
    frame = pd.DataFrame({"i": [0, 1, 2], "j": [1, 2, 0], "similar": [True, False, None], "annotator": ["u", "v", "u"]})
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(frame.to_json(orient="records"))
    for name in ("a.parquet", "a.json"):
        read = read_answers(tmp_path / name)
        assert triples(read) == [(0, 1, True), (1, 2, False)]
        assert read.unsure.i.tolist() == [2]
        assert read.notes == ("1 answer is empty: kept out of the likelihood.",)


def test_items_are_matched_by_how_they_are_written(tmp_path):
    path = written(tmp_path / "a.csv", "i,j,similar\n017,18,1\n18,x,0\n")
    assert triples(read_answers(path)) == [("017", "18", True), ("18", "x", False)]
    assert triples(read_answers(path, item_ids=[17, 18, "x"])) == [(17, 18, True), (18, "x", False)]
    assert triples(read_answers(path, item_ids=["017", "18", "x"])) == [("017", "18", True), ("18", "x", False)]
    features = pd.DataFrame({"id": ["A", "17", "18"], "f": [0.0, 1.0, 2.0]})
    features.to_csv(tmp_path / "x.csv", index=False)
    path = written(tmp_path / "b.csv", "i,j,similar\n17,18,1\n18,17,0\n")
    assert PairData.read(tmp_path / "x.csv", path, id_column="id").i.tolist() == [1, 2]


def test_unknown_items_are_named_with_their_row_in_the_file(tmp_path):
    """Rows that were set aside before them count; five names are shown; an id that is missing counts items, not answers."""
    rows = ["a,b,yes", "a,c,unsure", "b,c,maybe", "b,c,no", *(f"a,x{n},no" for n in range(7)), "x0,b,yes"]
    path = written(tmp_path / "a.csv", "i,j,similar\n" + "\n".join(rows))
    read = read_answers(path, item_ids=["a", "b", "c"], skip_unreadable=True)
    assert read.rows.tolist() == [0, *range(3, 12)]
    words = r"in the table of features, found 'x0', 'x1', 'x2', 'x3', 'x4' and 2 more, which do not \(first at row 4,"
    with pytest.raises(PairDataError, match=words) as error:
        PairData.from_arrays(np.eye(3), read, item_ids=["a", "b", "c"])
    assert error.value.row == 4
    with pytest.raises(PairDataError, match=r"item_ids: .*None") as error:
        PairData.from_arrays(np.eye(3), read, item_ids=["a", "b", None])
    assert error.value.row == 2
    numbers = read_answers(written(tmp_path / "n.csv", "i,j,similar\n0,1,unsure\n0,2,yes\n0,9,no\n"))
    with pytest.raises(PairDataError, match=r"found \[0, 9\] \(first at row 2,"):
        PairData.from_arrays(np.eye(3), numbers)


def test_read_answers_are_taken_by_fit_and_split(tmp_path, noisy_blobs):
    a = noisy_blobs.answers
    frame = pd.DataFrame({"left": a.pairs[:, 0], "right": a.pairs[:, 1], "answer": np.where(a.similar, "yes", "no")})
    frame.loc[:19, "answer"] = "unsure"
    frame.to_csv(tmp_path / "a.csv", index=False)
    read, half = (read_answers(tmp_path / "a.csv", unsure=how) for how in ("drop", "half"))
    assert "20 answers are 'unsure': kept out of the likelihood." in read.notes
    assert "20 answers are 'unsure': each taken as 0.5." in half.notes
    small = VolMaxDCC(
        3, confusion="none", volume=0.0, hidden=(4,), epochs=1, scale="standard", init="kmeans", random_state=0
    )
    est = small.fit(noisy_blobs.X, read)
    direct = PairData.from_arrays(noisy_blobs.X, a.pairs[20:], a.similar[20:])
    assert est.fitted_.holds(direct)
    assert est.score(noisy_blobs.X, half) < est.score(noisy_blobs.X, read)
    assert (PairData.from_arrays(noisy_blobs.X, half).soft[:20] == 0.5).all()
    with pytest.raises(PairDataError, match="Leave soft out"):
        small.fit(noisy_blobs.X, read, soft=True)
    assert len(PairAnswers.from_frame(150, read.frame)) == 150


# The command line.


def test_fit_says_what_it_read_and_keeps_what_it_set_aside(tmp_path, capsys, noisy_blobs):
    a = noisy_blobs.answers
    names = [f"n{k}" for k in range(150)]
    pd.DataFrame(noisy_blobs.X, columns=list("abcd")).assign(id=names).to_csv(tmp_path / "x.csv", index=False)
    rows = [
        f"n{i};n{j};{'same' if s else 'different'};u{k % 3}"
        for k, ((i, j), s) in enumerate(zip(a.pairs, a.similar, strict=True))
    ]
    rows[3:5] = ["n1;n2;Cannot decide;u1", "n1;n1;same;u1"]
    written(tmp_path / "p.csv", "\n".join(["Links;Rechts;Antwort;Wer", *rows]), "utf-16")
    how = ["--columns", "i=Links,j=Rechts,similar=Antwort,annotator=Wer"]
    fast = [
        "-k",
        3,
        "--epochs",
        1,
        "--confusion",
        "none",
        "--volume",
        0,
        "--scale",
        "standard",
        "--init",
        "kmeans",
        "--id-column",
        "id",
    ]
    call = ["fit", tmp_path / "x.csv", tmp_path / "p.csv", "-o", tmp_path / "run", *fast]
    assert pdcc(*call) == 2
    assert "--columns i=left,j=right,similar=answer" in capsys.readouterr().err
    assert pdcc(*call, *how) == 0
    said = capsys.readouterr()
    assert "1 answer is 'Cannot decide': kept out of the likelihood." in said.err
    assert "598 answers about 150 items (1 self-pairs dropped, 1 unsure)" in said.out
    kept = runs.reading_of(tmp_path / "run")
    assert kept["n_rows"] == 600
    assert kept["unsure"] == [{"row": 3, "i": "n1", "j": "n2", "similar": "Cannot decide", "annotator": "u1"}]
    assert "1 answer is 'Cannot decide': kept out of the likelihood." in kept["notes"]
    data = runs.read_data(tmp_path / "run")
    assert (len(data), data.soft) == (598, None)
    assert pdcc(*call, *how, "--resume") == 0
    assert pdcc(*call, *how, "--resume", "--unsure", "half") == 2
    assert "how the pairs file is read" in capsys.readouterr().err
    assert pdcc(*call, *how, "--overwrite", "--unsure", "half") == 0
    assert "599 answers about 150 items (1 self-pairs dropped, 1 unsure, each as 0.5)" in capsys.readouterr().out
    assert (runs.read_data(tmp_path / "run").soft == 0.5).sum() == 1
    assert VolMaxDCC.load(tmp_path / "run").fitted_.holds(runs.read_data(tmp_path / "run"))
    written(
        tmp_path / "p.csv",
        "\n".join(["i,j,similar", *(r.rsplit(";", 1)[0].replace(";", ",") for r in rows), "n1,n2,\x1b[31mperhaps"]),
    )
    assert pdcc(*call, "--overwrite") == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "row 600, similar: '\\x1b[31mperhaps', not a word for an answer" in error
    assert pdcc(*call, "--overwrite", "--skip-unreadable") == 0
    assert "1 unsure, 1 unreadable" in capsys.readouterr().out.replace(
        "1 unreadable, 1 unsure", "1 unsure, 1 unreadable"
    )
    assert [row["row"] for row in runs.reading_of(tmp_path / "run")["unreadable"]] == [600]
