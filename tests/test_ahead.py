"""Rows that are read one batch ahead: in order, by a thread of their own that ends with the loop."""

import threading
import time

import numpy as np
import pytest
import torch
from test_large import QUICKLY, world

from pdcc import PairData, VolMaxDCC, rows
from pdcc.inference.batches import ahead
from pdcc.inference.rows import RowSource
from pdcc.validation import check_device


def test_the_next_batch_is_read_while_this_one_is_used():
    """One ahead and no more, in order, by a thread that ends with the loop, however it ends."""
    made, x = [], RowSource(lambda numbers: np.zeros((len(numbers), 1), np.float32), (9, 1), torch.device("cpu"))
    parts = list(torch.arange(9).split(2))

    def make(part):
        made.append((part.tolist(), threading.current_thread()))
        return part

    used = []
    for part in ahead(make, parts, x):
        used.append(part.tolist())
        deadline = time.monotonic() + 20
        while len(made) < min(len(used) + 1, len(parts)) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(made) == min(len(used) + 1, len(parts))
    assert used == [part.tolist() for part in parts]
    threads = {thread for _, thread in made}
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)
    made.clear()
    assert len(list(ahead(make, parts, torch.zeros(9, 1)))) == len(parts)  # items in memory: nothing to wait for
    assert {thread for _, thread in made} == {threading.current_thread()}
    assert list(ahead(make, [], x)) == []


def test_what_goes_wrong_while_reading_ahead_is_raised_by_the_fit(monkeypatch):
    monkeypatch.setattr(rows, "LARGEST_IN_MEMORY", 64)  # everything is large
    X, pairs, similar = world()
    data = PairData.from_arrays(X, pairs, similar)
    est = VolMaxDCC(3, confusion="stochastic", volume=0.01, **QUICKLY)
    prepared = est.prepare(data)
    source, count = prepared.chosen.view.x, iter(range(10**6))
    read = source.read

    def breaks(numbers):
        if threading.current_thread() is not threading.main_thread() and next(count) == 3:
            raise OSError("the disk is gone")
        return read(numbers)

    monkeypatch.setattr(source, "read", breaks)
    with pytest.raises(OSError, match="the disk is gone"):
        est.fit_data(data, prepared=prepared)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pdcc-rows")]


def test_a_gpu_is_known_by_its_number(monkeypatch):
    """The thread that reads ahead has a current GPU of its own."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert {str(check_device(asked)) for asked in ("auto", "cuda", torch.device("cuda"))} == {"cuda:3"}
    assert [str(check_device(asked)) for asked in ("cuda:1", "cpu")] == ["cuda:1", "cpu"]
