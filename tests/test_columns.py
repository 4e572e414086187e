"""Which column of a table of answers is which: what is guessed is said, and what is not clear is not guessed."""

from pathlib import Path

import pytest
from helpers import triples, written

from pdcc import PairDataError, read_answers
from pdcc.data.dialect import ANNOTATORS, ANSWERS, ENDS, columns_of_answers


@pytest.mark.parametrize(
    ("header", "pair"),
    [
        ("Text 1,Text 2,verdict", ("Text 1", "Text 2")), ("docA,docB,verdict", ("docA", "docB")), ("r-doc,l-doc,verdict", ("l-doc", "r-doc")),
        ("FirstName,SecondName,verdict", ("FirstName", "SecondName")), ("doc left,doc right,verdict", ("doc left", "doc right")),
        ("doc_2,doc_1,verdict", ("doc_1", "doc_2")), ("person_1,person_2,verdict", ("person_1", "person_2")), ("L,R,verdict", ("L", "R")),
        ("x1,x2,verdict,x3", None), ("doc_a,doc_b,verdict,doc_c", None), ("first,word,verdict,second,third", ("first", "second")),
        ("id1x,id2x,verdict", None), ("doc1,doc2,verdict,text1,text2", None), ("rater_1,rater_2,verdict", None), ("doc1,doc_2,verdict", None),
    ],
)  # fmt: skip
def test_items_are_in_two_columns_that_differ_in_a_mark(tmp_path, header, pair):
    names = header.split(",")
    cells = ["yes" if name == "verdict" else f"n{name}" for name in names]
    path = written(tmp_path / "a.csv", f"{header}\n{','.join(cells)}\n")
    if pair is None:
        with pytest.raises(PairDataError, match=r"pairs table.*Add i, j, or say which"):
            read_answers(path)
        return
    read = read_answers(path)
    assert triples(read) == [(f"n{pair[0]}", f"n{pair[1]}", True)]
    assert any(
        note.startswith(f"Columns: i is {pair[0]!r}, j is {pair[1]!r}, similar is 'verdict'") for note in read.notes
    )


def test_the_answer_is_the_one_column_in_words(tmp_path):
    path = written(tmp_path / "a.csv", "i,j,n,together?,remark\n0,1,1,Yes,x\n1,2,0,no,y\n0,2,1,,same\n")
    read = read_answers(path)
    assert read.frame.similar.tolist() == [True, False]
    assert len(read.unsure) == 1
    assert "Columns: similar is 'together?'." in read.notes
    for text in ("i,j,n\n0,1,1\n", "i,j,p,q\n0,1,yes,no\n", "i,j,p\n0,1,?\n0,1,\n", "i,j,p\n0,1,yes\n0,2,perhaps\n"):
        with pytest.raises(PairDataError, match="Add similar, or say which"):
            read_answers(written(tmp_path / "b.csv", text))
    read = read_answers(written(tmp_path / "c.csv", "i,j,p,is_same,Reviewer\n0,1,yes,no,ann\n"))
    assert (read.frame.similar.tolist(), read.frame.annotator.tolist()) == ([False], ["ann"])


def test_columns_of_suggested_pairs_need_no_note(tmp_path):
    rows = "i,j,gain,chosen_by,probability,similar\n0,1,0.5,suggested,0.1,yes\n1,2,0.1,random,0.1,no\n"
    read = read_answers(written(tmp_path / "next.csv", rows))
    assert (read.notes, read.ignored) == ((), ())
    read = read_answers(written(tmp_path / "other.csv", "i,j,gain,similar\n0,1,0.5,yes\n"))
    assert read.notes == ("Columns that are ignored: gain.",)  # which may be anything there


def test_a_column_that_may_name_annotators_is_said(tmp_path):
    def noted(extra, n=10, header="i,j,similar,given by"):
        rows = "".join(f"{k},{k + 1},yes,{extra(k)}\n" for k in range(n))
        return [x for x in read_answers(written(tmp_path / "a.csv", f"{header}\n{rows}")).notes if "ignored" in x]

    two = "Columns that are ignored: given by. If 'given by' names who answered: --columns 'annotator=given by'."
    assert noted(lambda k: f"u{k % 2}") == [two]
    for extra in (lambda k: f"u{k % 3}", lambda k: "u", lambda k: k % 2, lambda k: ("yes", "no")[k % 2]):
        assert noted(extra) == ["Columns that are ignored: given by."]
    header = "i,j,similar,given by,place"
    assert "If one of 'given by', 'place' names who" in noted(lambda k: f"u{k % 2},p{k % 2}", header=header)[0]
    assert "annotator=" not in noted(lambda k: f"u{k % 2},p{k % 2}", header="i,j,similar,worker,place")[0]
    assert "annotator=" not in noted(lambda k: f"u{k % 201}", n=2010)[0]


def test_a_table_of_features_is_one_of_answers_by_known_names_alone():
    assert columns_of_answers(["Left", "right", "is_same"]) == ("Left", "right", "is_same")
    assert columns_of_answers(["doc_1", "doc_2", "similar"]) == ()
    assert columns_of_answers(["i", "j", "together"]) == ()


def test_the_documentation_names_all_columns_that_are_known():
    text = (Path(__file__).parents[1] / "docs" / "answers.md").read_text(encoding="utf-8")
    names = [", ".join(pair) for pair in ENDS] + [*ANSWERS, *ANNOTATORS]
    assert [name for name in names if f"`{name}`" not in text] == []
