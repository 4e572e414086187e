"""Which pairs are asked, and of whom."""

import threading
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from label_server import wait_until

from pdcc.asking.uniform import RandomPairs, numbered_pairs, pair_numbers
from pdcc.errors import PairDataError
from pdcc.label.queue import REFRESH, Pair, Queue
from pdcc.label.sources import check_table

NONE = np.empty((0, 2), np.int64)


def rows(table):
    return list(map(tuple, np.sort(table[["i", "j"]].to_numpy(), axis=1).tolist()))


@pytest.mark.parametrize("n", [2, 3, 50])
def test_every_pair_has_one_number(n):
    pairs = np.array(list(combinations(range(n), 2)))
    numbers = pair_numbers(pairs[:, ::-1])
    assert sorted(numbers.tolist()) == list(range(n * (n - 1) // 2))
    np.testing.assert_array_equal(numbered_pairs(numbers), pairs)


def test_numbers_of_many_items_are_exact():
    """At the borders between rows, where a rounded root would be one off."""
    high = np.array([2, 10**3, 10**6 - 1, 10**6, 3 * 10**7, 94_906_267])
    edges = np.concatenate([np.column_stack([np.zeros_like(high), high]), np.column_stack([high - 1, high])])
    np.testing.assert_array_equal(numbered_pairs(pair_numbers(edges)), edges)


def test_random_pairs_are_uniform_and_never_barred():
    """Of 15 pairs 3 are barred; the chi-square of 1200 draws over the other 12, 11 degrees of freedom, is below 35 but once in 4000."""
    exclude = np.array([[0, 1], [4, 2], [5, 0], [1, 0]])
    source = RandomPairs(6, random_state=0)
    drawn = [pair for _ in range(300) for pair in rows(source(4, exclude))]
    counts = pd.Series(drawn).value_counts()
    assert set(counts.index) == set(combinations(range(6), 2)) - {(0, 1), (2, 4), (0, 5)}
    assert ((counts - 100) ** 2 / 100).sum() < 35
    sides = [i < j for _ in range(100) for i, j in source(1, exclude)[["i", "j"]].to_numpy()]
    assert 25 < sum(sides) < 75


def test_a_batch_repeats_nothing_and_ends_with_the_pairs():
    source = RandomPairs(20, random_state=0)
    first = source(50, NONE)
    assert len(set(rows(first))) == 50
    np.testing.assert_allclose(first.probability, 1 / (190 - np.arange(50)))
    rest = source(1000, first[["i", "j"]].to_numpy())
    assert len(rest) == 140
    assert set(rows(rest)) | set(rows(first)) == set(combinations(range(20), 2))
    assert rest.probability.iloc[-1] == 1
    assert len(source(5, np.array(list(combinations(range(20), 2))))) == 0


def test_a_million_items_need_no_square():
    source = RandomPairs(10**6, random_state=0)
    barred = source(20_000, NONE)[["i", "j"]].to_numpy()
    table = source(1000, barred)
    assert len(set(rows(table))) == 1000
    assert table[["i", "j"]].to_numpy().max() > 990_000
    assert not set(rows(table)) & set(map(tuple, np.sort(barred, axis=1).tolist()))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def make_queue(n=6, source=None, **options):
    return Queue(n, source, fallback=RandomPairs(n, random_state=0), **options)


def test_no_pair_goes_to_two_and_all_go_out():
    queue = make_queue(6)
    given = [queue.hand_out(f"page-{k}", f"annotator {k}") for k in range(15)]
    assert {t.pair.rows for t in given} == set(combinations(range(6), 2))
    assert queue.hand_out("page-99", "Zoe") is None
    queue.settle(given[3])
    assert queue.hand_out("page-99", "Zoe") is None


def test_a_page_gets_its_own_pair_again_until_it_answers():
    queue = make_queue()
    ticket = queue.hand_out("page", "Ann")
    assert queue.hand_out("page", "Ann").name == ticket.name
    queue.settle(ticket)
    assert queue.find(ticket.name) is None
    assert queue.hand_out("page", "Ann").pair.rows != ticket.pair.rows


def test_another_person_at_the_same_page_gives_the_pair_back():
    queue = make_queue()
    ticket = queue.hand_out("page", "Ann")
    assert queue.hand_out("page", "Bob").pair.rows == ticket.pair.rows
    assert queue.find(ticket.name) is None


def test_a_pair_that_is_not_answered_goes_to_another():
    clock = Clock()
    queue = make_queue(patience=60, clock=clock)
    ticket = queue.hand_out("page-a", "Ann")
    clock.now = 59
    assert queue.hand_out("page-b", "Bob").pair.rows != ticket.pair.rows
    clock.now = 61
    assert queue.find(ticket.name) == ticket  # late, and still theirs
    again = queue.hand_out("page-c", "Cem")
    assert again.pair == ticket.pair
    assert queue.find(ticket.name) is None  # too late


def test_overlap_asks_as_many_different_annotators():
    queue = make_queue(3, overlap=2)
    seen = {name: [] for name in ("Ann", "Bob", "Cem")}
    for name in list(seen) * 4:
        ticket = queue.hand_out(f"page {name}", name)
        if ticket is not None:
            seen[name].append(ticket.pair.rows)
            queue.settle(ticket)
    assert all(len(set(pairs)) == len(pairs) for pairs in seen.values())
    counts = pd.Series([pair for pairs in seen.values() for pair in pairs]).value_counts()
    assert counts.to_dict() == dict.fromkeys(combinations(range(3), 2), 2)


def test_two_pages_of_one_annotator_do_not_share_a_pair():
    queue = make_queue(3, overlap=2)
    assert queue.hand_out("page-1", "Ann").pair.rows != queue.hand_out("page-2", "Ann").pair.rows


def test_answers_of_before_and_of_the_fit_are_not_asked_again():
    answered = [(Pair(0, 1, "random", None), "Ann"), (Pair(3, 2, "random", None), "Bob")]
    queue = make_queue(4, answered=answered, exclude=np.array([[3, 0]]))
    given = [queue.hand_out(f"page-{k}", f"annotator {k}") for k in range(4)]
    assert {t.pair.rows for t in given[:3]} == {(0, 2), (1, 2), (1, 3)}
    assert given[3] is None
    queue = make_queue(4, answered=answered, overlap=2, exclude=np.array([[3, 0]]))
    assert queue.hand_out("page", "Ann").pair.rows == (2, 3)


def test_after_undo_the_pair_comes_back_to_who_took_it_back():
    queue = make_queue()
    first = queue.hand_out("page", "Ann")
    queue.settle(first)
    second = queue.hand_out("page", "Ann")
    again = queue.reopen(first.pair, "page", "Ann")
    assert queue.hand_out("page", "Ann").name == again.name
    assert queue.hand_out("other", "Bob").pair.rows not in (first.pair.rows, second.pair.rows)
    queue.settle(again)
    assert queue.hand_out("page", "Ann").name == second.name


class Suggesting:
    """Suggests pairs in order, waits where it is told to, and remembers what it was asked."""

    def __init__(self, n=12):
        self.pairs, self.calls, self.go, self.fail = list(combinations(range(n), 2)), [], threading.Event(), False
        self.go.set()

    def __call__(self, n, exclude):
        self.calls.append(exclude)
        assert self.go.wait(20)
        if self.fail:
            raise RuntimeError("no luck")
        barred = set(map(tuple, np.sort(exclude, axis=1).tolist()))
        left = [p for p in self.pairs if p not in barred][:n]
        return pd.DataFrame(left, columns=["i", "j"]).assign(gain=1.0, chosen_by="suggested", probability=np.nan)


@pytest.fixture
def suggesting():
    source = Suggesting()
    queue = Queue(12, source, fallback=RandomPairs(12, random_state=0))
    yield source, queue
    source.go.set()
    queue.close()
    queue._thread.join(20)
    assert not queue._thread.is_alive()


def test_suggested_pairs_come_first_and_are_chosen_anew(suggesting):
    source, queue = suggesting
    wait_until(lambda: len(queue._ahead))
    for k in range(REFRESH):
        ticket = queue.hand_out("page", "Ann")
        assert (ticket.pair.rows, ticket.pair.chosen_by, ticket.pair.probability) == (
            source.pairs[k],
            "suggested",
            None,
        )
        queue.settle(ticket)
    wait_until(lambda: len(source.calls) == 2)
    assert set(map(tuple, source.calls[1].tolist())) == set(source.pairs[:REFRESH])


def test_nobody_waits_for_suggestions():
    source = Suggesting()
    source.go.clear()
    queue = Queue(12, source, fallback=RandomPairs(12, random_state=0))
    try:
        given = [queue.hand_out(f"page-{k}", "Ann") for k in range(20)]
        assert {t.pair.chosen_by for t in given} == {"random"}
        source.go.set()
        wait_until(lambda: len(queue._ahead))
        more = [queue.hand_out(f"later-{k}", "Bob").pair for k in range(8)]
        assert {pair.chosen_by for pair in more} == {"suggested"}
        assert not {t.pair.rows for t in given} & {pair.rows for pair in more}
    finally:
        source.go.set()
        queue.close()


@pytest.mark.parametrize("fault", ["an error", "a table without columns"])
def test_a_source_that_fails_leaves_random_pairs(fault, caplog):
    source = Suggesting()
    source.fail = fault == "an error"
    bad = source if source.fail else lambda n, exclude: pd.DataFrame({"i": [0], "j": [1]})
    queue = Queue(12, bad, fallback=RandomPairs(12, random_state=0))
    try:
        wait_until(lambda: "no pairs were suggested" in caplog.text)
        assert queue.hand_out("page", "Ann").pair.chosen_by == "random"
    finally:
        queue.close()


@pytest.mark.parametrize("pair", [(0, 0), (0, 5), (-1, 2), (0.0, 1.0)])
def test_tables_of_sources_are_checked(pair):
    good = pd.DataFrame({"i": [1], "j": [2], "gain": 0.0, "chosen_by": "random", "probability": 1.0})
    check_table(good, 5)
    with pytest.raises(PairDataError, match="next pairs"):
        check_table(pd.concat([good, good.assign(i=pair[0], j=pair[1])]), 5)
