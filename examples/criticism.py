"""Model criticism of a fit: posterior draws, predictive checks, calibration of held-out answers, leave-one-out.

python examples/criticism.py [--epochs 40] [--draws 200]
"""

import argparse

import numpy as np

from pdcc import PairData, VolMaxDCC, datasets
from pdcc.annotators import answer_by_labels, answer_through, draw_pairs
from pdcc.criticism import check_calibration, check_loo, check_predictive, run_calibration, run_loo, run_predictive

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--draws", type=int, default=200)
args = parser.parse_args()

# The paper's synthetic items. Two crowds are wrong equally often: one errs answer by answer, as the model says; the other
# labels every item once, sometimes wrongly, and compares the labels.
K, rng = 3, np.random.default_rng(0)
data = datasets.synthetic(600, seed=0)
F, X = data.memberships[:300], data.X[:300]
pairs = draw_pairs(len(X), 4000, rng)
A = 0.8 * np.eye(K) + 0.2 / K  # A[observed, true]
one_by_one = answer_through(F, pairs, A, rng)
mistaken = (rng.random((len(X), 1)) > np.cumsum(F @ A.T, axis=1)).sum(axis=1)
once_per_item = answer_by_labels(F.argmax(axis=1), mistaken, pairs)

setting = {"hidden": (32,), "dropout": 0.0, "scale": "standard", "init": "kmeans", "partition_weight": 0.0}
for name, answers in (("errors answer by answer", one_by_one), ("errors once per item", once_per_item)):
    est = VolMaxDCC(K, confusion="stochastic", volume=1e-3, lr=1e-2, epochs=args.epochs, random_state=0, **setting).fit(
        X, pairs, answers.similar
    )
    print(f"\n{name}: {100 * answers.flip_rate:.0f} % of the answers wrong")
    idata = est.posterior(X, pairs, answers.similar, method="svi", draws=args.draws, steps=500)  # arviz.InferenceData
    print(f"posterior: {idata.attrs['status']}. {idata.attrs['message']}")

    for row in check_predictive(run_predictive(idata, draws=args.draws), level=0.05).to_dict("records"):
        if row["verdict"] == "misfit":
            print(f"misfit: {row['sentence']}")

    held = est.fitted_.split.test(PairData.from_arrays(X, pairs, answers.similar))
    p = est.predict_pairs(X, np.column_stack([held.i, held.j]))
    for row in check_calibration(run_calibration(p, held.similar)).to_dict("records"):
        print(f"{row['test']}: {row['verdict']}")
    print(check_loo(run_loo(idata))[1])
