"""Machines as annotators: asked once, paid once, never beyond a budget, and learned beside people."""

import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import VolMaxDCC, read_answers
from pdcc.cli import main
from pdcc.errors import ArtifactError, BusyError
from pdcc.label.store import Store
from pdcc.oracles import OracleError, Reply, TemporaryOracleError, annotator_id, ask, share_families
from pdcc.storage.lock import claimed_file

WORDS = ["cat", "dog", "cow", "ant", "bee", "hen"]
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]


class Rule:
    """Two words are the same if they begin alike; it remembers what it was asked."""

    name, version, price = "first-letter", "1", 0.5

    def __init__(self, say=None, cost=0.25):
        self.asked, self.say, self.cost = [], say or (lambda a, b: a[0] == b[0]), cost

    def answer(self, pairs, items):
        self.asked += pairs
        return Reply([self.say(items[i], items[j]) for i, j in pairs], cost=self.cost * len(pairs))


def test_answers_come_as_fit_takes_them(tmp_path):
    said = {("cat", "dog"): 0.75, ("dog", "cow"): None}
    rule = Rule(lambda a, b: said.get((a, b), a[0] == b[0]))
    found = ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", family="rules")
    assert found.frame.columns.tolist() == ["i", "j", "similar", "annotator"]
    assert found.frame.similar.tolist() == [0.75, 0, 0, 0, 0]
    assert set(found.frame.annotator) == {"rules:first-letter"}
    assert found.unsure[["i", "j"]].to_numpy().tolist() == [[1, 2]]
    assert found.soft
    assert found.table.cost.tolist() == [0.25] * 6
    assert (found.cost, found.paid) == (1.5, 1.5)
    # What is written is what pdcc fit reads.
    found.table.to_csv(tmp_path / "answers.csv", index=False)
    read = read_answers(tmp_path / "answers.csv", soft=True)
    pd.testing.assert_frame_equal(read.frame, found.frame.astype(read.frame.dtypes))
    assert len(read.unsure) == 1


def test_no_pair_is_paid_for_twice(tmp_path):
    cache, rule = tmp_path / "c.sqlite", Rule()
    ask(rule, PAIRS[:4], WORDS, cache=cache)
    again = ask(rule, [(b, a) for a, b in PAIRS] + PAIRS, WORDS, cache=cache)
    assert sorted(tuple(sorted(p)) for p in rule.asked) == sorted(tuple(sorted(p)) for p in PAIRS)
    assert (len(again.table), again.paid, again.cost) == (6, 0.5, 1.5)
    assert "4 were known" in again.notes[0]
    assert "6 pairs were the same as others" in again.notes[1]
    # Another version, another text of an item, and another oracle are other questions.
    rule.version = "2"
    assert ask(rule, PAIRS[:1], WORDS, cache=cache).paid == 0.25
    assert ask(rule, PAIRS[:2], ["CAT", *WORDS[1:]], cache=cache).paid == 0.5
    rule.name = "other"
    assert ask(rule, PAIRS[:1], WORDS, cache=cache).paid == 0.25
    rule.asked.clear()
    ask(rule, [("y", "x")], ["one", "two"], item_ids=["x", "y"], cache=cache)
    assert ask(rule, [("x", "y")], ["two", "one"], item_ids=["y", "x"], cache=cache).paid == 0
    assert rule.asked == [(1, 0)]


def test_a_killed_process_goes_on(tmp_path):
    """It dies in its third batch, without a word; the two before are on disk."""
    program = f"""
    import os, sys
    sys.path[:0] = {sys.path!r}
    from pdcc.oracles import ask
    from test_oracles import PAIRS, WORDS, Rule
    class Dies(Rule):
        def answer(self, pairs, items):
            if len(self.asked) == 4:
                os._exit(9)
            return super().answer(pairs, items)
    ask(Dies(), PAIRS, WORDS, cache={str(tmp_path / "c.sqlite")!r}, batch=2)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False).returncode == 9
    rule = Rule()
    found = ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite")
    assert rule.asked == PAIRS[4:]
    assert (len(found.table), found.paid, found.cost) == (6, 0.5, 1.5)


def test_two_processes_do_not_ask_at_once(tmp_path):
    with claimed_file(tmp_path / "c.sqlite"), pytest.raises(BusyError, match="in use by"):
        ask(Rule(), PAIRS, WORDS, cache=tmp_path / "c.sqlite")


def test_a_budget_is_not_exceeded(tmp_path):
    rule = Rule(cost=0.5)
    found = ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", budget=1.5, batch=2)
    assert rule.asked == PAIRS[:3]
    assert found.cost == 1.5
    assert found.unasked.to_numpy().tolist() == [list(p) for p in PAIRS[3:]]
    assert "3 pairs were left unasked" in found.notes[1]
    # What was paid earlier counts; a larger budget goes on.
    assert ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", budget=1.9).paid == 0
    assert ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", budget=2.0).paid == 0.5
    # Cheaper than the price: it may ask on, up to where one answer at the price could exceed it.
    cheap = Rule()
    assert len(ask(cheap, PAIRS, WORDS, cache=tmp_path / "cheap.sqlite", budget=1.0, batch=2).table) == 3
    # Dearer than the price: that is said, and nothing more is asked.
    dear = Rule(cost=2.0)
    found = ask(dear, PAIRS, WORDS, cache=tmp_path / "dear.sqlite", budget=1.0, batch=1)
    assert dear.asked == PAIRS[:1]
    assert "the price of first-letter is too low" in found.notes[-1]


def test_a_budget_needs_a_price(tmp_path):
    rule = Rule()
    rule.price = None
    with pytest.raises(OracleError, match="budget: expected an oracle with a price"):
        ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", budget=1.0)
    assert not rule.asked


class Flaky(Rule):
    """Fails ``times`` times before each batch."""

    def __init__(self, times, after=0.0):
        super().__init__()
        self.times, self.failed, self.after = times, 0, after

    def answer(self, pairs, items):
        if self.failed < self.times:
            self.failed += 1
            raise TemporaryOracleError("too many requests", after=self.after)
        self.failed = 0
        return super().answer(pairs, items)


def test_temporary_errors_are_tried_again_after_growing_waits(tmp_path):
    waits = []
    rule = Flaky(3)
    found = ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite", batch=4, wait=0.5, sleep=waits.append)
    assert len(found.table) == 6
    assert waits == [0.5, 1.0, 2.0] * 2
    waits.clear()
    ask(Flaky(2, after=7.0), PAIRS, WORDS, cache=tmp_path / "d.sqlite", wait=4.0, sleep=waits.append)
    assert waits == [7.0, 8.0]
    with pytest.raises(OracleError, match=r"3 temporary errors in a row \(too many requests\).*goes on from there"):
        ask(Flaky(9), PAIRS, WORDS, cache=tmp_path / "e.sqlite", retries=2, sleep=waits.append)
    assert len(waits) == 4


def test_other_errors_are_not_tried_again_and_lose_nothing(tmp_path):
    class Broken(Rule):
        def answer(self, pairs, items):
            if self.asked:
                raise KeyError("token")
            return super().answer(pairs, items)

    with pytest.raises(OracleError, match="'first-letter': expected answers, found KeyError: 'token'") as error:
        ask(Broken(), PAIRS, WORDS, cache=tmp_path / "c.sqlite", batch=2)
    assert isinstance(error.value.__cause__, KeyError)
    rule = Rule()
    ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite")
    assert rule.asked == PAIRS[2:]


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        ([1, 0], "one for each of 6 pairs, found 2"),
        ([1, 0, "yes", 1, 1, 1], r"a probability in between, or None, found 'yes' \(first at row 2"),
        ([1, 0, float("nan"), 1, 1, 1], "found nan"),
        ([1, -1, 0, 1, 1, 1], "found -1"),
        ([1, 2, 0, 1, 1, 1], "found 2"),
        ("110101", "a sequence of 6 answers, or a Reply, found '110101'"),
        (None, "a sequence of 6 answers, or a Reply, found None"),
        (Reply([1] * 6, cost=-1), "a cost of at least 0"),
        (Reply([1] * 6, cost=[1, 2]), "a cost of at least 0, or one for each of 6"),
        (Reply([1] * 6, cost=float("inf")), "a cost of at least 0"),
    ],
)
def test_what_is_no_answer_is_said(reply, match, tmp_path):
    rule = Rule()
    rule.answer = lambda pairs, items: reply
    with pytest.raises(OracleError, match=match):
        ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite")
    assert ask(Rule(), PAIRS, WORDS, cache=tmp_path / "c.sqlite").paid == 1.5  # nothing of it was kept


def test_numbers_of_numpy_are_answers_and_costs(tmp_path):
    rule = Rule()
    rule.answer = lambda pairs, items: Reply(np.array([True, False] * 3), cost=np.full(6, 0.1, dtype=np.float32))
    found = ask(rule, np.array(PAIRS), np.arange(12.0).reshape(6, 2), cache=tmp_path / "c.sqlite")
    assert found.frame.similar.tolist() == [True, False] * 3
    assert found.cost == pytest.approx(0.6)
    rule.answer, rule.version = lambda pairs, items: [0.5] * len(pairs), "2"  # no costs: the price of each
    assert ask(rule, PAIRS, pd.DataFrame({"word": WORDS}), cache=tmp_path / "c.sqlite").cost == 3.0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": ""}, "oracle: expected a name"),
        ({"version": 1}, "oracle: expected a version, text that is not empty, found 1"),
        ({"answer": None}, "a method answer"),
        ({"price": -1}, "a price of at least 0, found -1"),
    ],
)
def test_bad_oracles(change, match, tmp_path):
    rule = Rule()
    for name, value in change.items():
        setattr(rule, name, value)
    with pytest.raises(OracleError, match=match):
        ask(rule, PAIRS, WORDS, cache=tmp_path / "c.sqlite")


def test_bad_arguments(tmp_path):
    cache = tmp_path / "c.sqlite"
    for arguments, options, match in [
        (([(0, 9)], WORDS), {}, "row numbers from 0 to 5"),
        ((pd.DataFrame({"i": [0]}), WORDS), {}, "the columns i and j"),
        (([("x", "y")], WORDS[:2]), {"item_ids": ["x", "z"]}, "'y', which does not"),
        (([(1, "1")], WORDS[:2]), {"item_ids": [1, "1"]}, "item_ids, as text: expected ids that occur once"),
        ((PAIRS, iter(WORDS)), {}, "items: expected a list, an array or a table"),
        ((PAIRS, WORDS), {"family": "a:b"}, "family"),
        ((PAIRS, WORDS), {"annotator": " "}, "annotator"),
        ((PAIRS, WORDS), {"batch": 0}, "batch"),
        ((PAIRS, WORDS), {"budget": -1}, "budget"),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            ask(Rule(), *arguments, cache=cache, **options)
    assert not cache.exists()
    with Store(cache):
        pass
    with pytest.raises(ArtifactError, match="a database of another program"):
        ask(Rule(), PAIRS, WORDS, cache=cache)


def test_the_log_is_on_disk_before_the_next_batch(tmp_path):
    path, seen = tmp_path / "c.sqlite", []

    class Looks(Rule):
        def answer(self, pairs, items):
            with sqlite3.connect(path) as base:
                seen.append(base.execute("SELECT count(*) FROM answers").fetchone()[0])
            base.close()
            return super().answer(pairs, items)

    ask(Looks(), PAIRS, WORDS, cache=path, batch=2)
    assert seen == [0, 2, 4]


def test_families_are_shared_by_those_who_answered_little():
    assert annotator_id("gpt", "llm") == "llm:gpt"
    assert annotator_id("ann") == "ann"
    ids = ["llm:a"] * 3 + ["llm:b", "llm:c"] + ["ann", 7]
    assert share_families(ids, fewest=3).tolist() == ["llm:a"] * 3 + ["llm", "llm", "ann", 7]


def test_a_machine_is_learned_beside_people(tmp_path):
    """A machine that calls everything different gets a confusion of its own, and does not spoil the people's."""
    blobs = make_blobs(n=60, n_pairs=400)
    rule = Rule(lambda a, b: 0.0)
    machine = ask(rule, blobs.answers.pairs[:200], blobs.X, cache=tmp_path / "c.sqlite", batch=200)
    people = pd.DataFrame(blobs.answers.pairs, columns=["i", "j"]).assign(
        similar=blobs.answers.similar, annotator=np.where(np.arange(400) % 2, "ann", "bob")
    )
    table = pd.concat([people, machine.frame], ignore_index=True)
    est = VolMaxDCC(3, confusion="per-annotator", volume=0.0, scale="standard", hidden=(16,), epochs=20, random_state=0)
    est.fit(blobs.X, table)
    assert est.annotators_ == ("ann", "bob", "first-letter")
    pairs = blobs.answers.pairs[blobs.answers.similar == 1][:50]
    p = {who: est.predict_pairs(blobs.X, pairs, [who] * len(pairs)).mean() for who in est.annotators_}
    assert p["first-letter"] < min(p["ann"], p["bob"]) - 0.1


ORACLE = """
from pdcc.oracles import Reply

class Near:
    name, version, price = "near", "1", 0.01

    def answer(self, pairs, items):
        return Reply([items[i]["text"][0] == items[j]["text"][0] for i, j in pairs], cost=0.01 * len(pairs))

class Rows(Near):
    name = "rows"

    def answer(self, pairs, items):
        return [float(items[i]["a"] == items[j]["a"]) for i, j in pairs]

made = Near()
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oracle_of_test.py").write_text(ORACLE)
    pd.DataFrame({"id": ["=n0", "n1", "n2"], "a": [0.0, 0.0, 1.0]}).to_csv("features.csv", index=False)
    pd.DataFrame({"item": ["n2", "n1", "=n0"], "text": ["xc", "xb", "ya"]}).to_csv("items.csv", index=False)
    pd.DataFrame({"i": ["=n0", "n1"], "j": ["n1", "n2"], "gain": [1, 2]}).to_csv("next.csv", index=False)
    yield tmp_path
    sys.modules.pop("oracle_of_test", None)


def call(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["-q", "ask", *words])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


USUAL = ["features.csv", "--pairs", "next.csv", "-o", "out.csv", "--cache", "c.sqlite", "--id-column", "id"]


def test_the_command_asks_and_goes_on(files, capsys):
    words = [*USUAL, "--items", "items.csv", "--oracle", "oracle_of_test:made", "--family", "rules"]
    path = list(sys.path)
    code, out, _ = call(capsys, *words, "--budget", "0.01", "--safe-csv")
    assert (code, sys.path) == (0, path)
    assert "1 pairs were left unasked" in out
    assert "1 answers, for 0.01 in all, in out.csv." in out
    assert pd.read_csv("out.csv").to_numpy().tolist() == [["'=n0", "n1", 0, "rules:near", 0.01, "rules"]]
    code, out, _ = call(capsys, *words)
    assert "1 pairs were asked of near 1, for 0.01; 1 were known." in out
    assert pd.read_csv("out.csv").similar.tolist() == [0, 1]
    code, out, _ = call(capsys, *USUAL, "--oracle", "oracle_of_test:Rows")  # a class; the features are shown
    assert pd.read_csv("out.csv").similar.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--oracle", "oracle_of_test"], "--oracle: expected module:object"),
        (["--oracle", "nowhere_to_be_found:x"], "nowhere_to_be_found"),
        (["--oracle", "oracle_of_test:absent"], "absent"),
        (["--oracle", "oracle_of_test:Reply"], "a class to be called without arguments, found 'oracle_of_test:Reply'"),
        (["--oracle", "oracle_of_test:made", "--pairs", "items.csv"], "a table with the columns i and j"),
        (["--oracle", "oracle_of_test:made", "-o", "next.csv"], "what is to be read"),
        (["--oracle", "oracle_of_test:made", "--items", "few.csv"], "a row for each item that is asked about"),
        (["--oracle", "oracle_of_test:made", "--pairs", "strange.csv"], "'n9', which does not"),
        (["--oracle", "oracle_of_test:made", "--features", "features.csv"], "a run beside it"),
        (["--oracle", "oracle_of_test:made"], "found TypeError|found KeyError"),
    ],
)
def test_bad_commands(words, match, files, capsys):
    pd.DataFrame({"item": ["n2"], "text": ["xc"]}).to_csv("few.csv", index=False)
    (files / "strange.csv").write_text("i,j\nn1,n9\n")
    code, _, err = call(capsys, *USUAL, *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert pd.Series([err]).str.contains(match).all()
    assert not (files / "out.csv").exists()
