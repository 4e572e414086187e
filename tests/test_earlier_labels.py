"""What is said of the earlier labels after more answers."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from pdcc.cli.again import _accuracy
from pdcc.select.refit import Changes


def test_labels_that_stayed_get_one_estimate(monkeypatch):
    judged = []

    def judge(fitted, data, **options):
        judged.append(fitted)
        beliefs = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0]])
        return SimpleNamespace(accuracy=f"{fitted} %", reason="", beliefs=beliefs)

    monkeypatch.setattr("pdcc.accuracy.estimate.judge_labels", judge)
    labels = np.array([0, 1, 1])
    stayed = Changes(4, 2, 3, 0, labels, labels, None, None)
    said = _accuracy((70, None), (80, None), stayed)
    assert said.endswith("estimate: the same labels, now judged by more answers: 80 %.")
    assert judged == [80]

    class Earlier(int):
        """A fit whose labels were 1, 0 and 0: what the new look calls 0, 1 and 1."""

        def memberships(self, features):
            return np.eye(2)[[1, 0, 0]]

    for changes in (replace(stayed, after=labels[::-1]), replace(stayed, n_new_items=1)):
        said = _accuracy((Earlier(70), SimpleNamespace(features=None)), (80, None), changes)
        assert "estimate: 70 % before, 80 % now." in said
        # Of the three labels 1, .4 and 1 are believed right.
        assert said.endswith("By all answers, about 80% of the earlier labels were right.")
