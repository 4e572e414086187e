"""Every ACC, NMI and ARI the paper prints (tables of section 6 and of the appendix), for comparison with ours.

``published.csv`` holds the figures as printed. The authors' code keeps ACC, ARI, NMI in this order and prints them as ACC,
NMI, ARI, so for their own two methods the paper's NMI rows hold ARI and the reverse; ``published`` undoes that and says so.
"""

from importlib.resources import files

import numpy as np
import pandas as pd

OWN_METHODS = ("VanillaDCC", "VolMaxDCC")
SWAPPED = {"ACC": "ACC", "NMI": "ARI", "ARI": "NMI"}

SHORT_TRAINED, THREE_HIDDEN_LAYERS = "600-epoch features", "three hidden layers"

# LaTeX label of a table: what it is about. The tables with deviations repeat the first three and are merged with them.
TABLES = {
    "stl10": ("stl10", "main"),
    "cifar10": ("cifar10", "main"),
    "imagenet10": ("imagenet10", "main"),
    "imagenet10_cc_real": ("imagenet10-amt", "main"),
    "ab_stl10": ("stl10", THREE_HIDDEN_LAYERS),
    "ab_cifar10": ("cifar10", THREE_HIDDEN_LAYERS),
    "600": ("imagenet10", SHORT_TRAINED),
}


def published(
    data: str | None = None,
    *,
    setting: str | None = None,
    method: str | None = None,
    split: str | None = None,
    metric: str | None = None,
    noise: float | None = None,
) -> pd.DataFrame:
    """One row per figure: data, setting, noise, task, method, split, metric, mean, std, table, note; arguments narrow it down.

    data: "stl10", "cifar10", "imagenet10" or "imagenet10-amt". setting: "main", "three hidden layers" or "600-epoch
    features". noise: share of wrong answers. task: what ``paper_task`` calls it.
    split: "seen" or "unseen". std: over 5 trials, NaN where none is printed. table: its LaTeX label.
    """
    text = {name: str for name in ("table", "method", "split", "printed")}
    with (files("pdcc.experiments.paper") / "published.csv").open() as file:
        table = pd.read_csv(file, dtype={**text, "noise": np.float64, "mean": np.float64, "std": np.float64})
    table["data"] = [TABLES[name][0] for name in table["table"]]
    table["setting"] = [TABLES[name][1] for name in table["table"]]
    names = table["data"].where(table["setting"] != SHORT_TRAINED, table["data"] + "-600")
    pairs = zip(names, table["noise"], strict=True)
    table["task"] = [name if name.endswith("amt") else f"{name}-{100 * level:.1f}" for name, level in pairs]
    own = table["method"].isin(OWN_METHODS)
    table["metric"] = table["printed"].where(~own, table["printed"].map(SWAPPED))
    table["note"] = ("printed as " + table["printed"]).where(table["metric"] != table["printed"], "")
    table = table[["data", "setting", "noise", "task", "method", "split", "metric", "mean", "std", "table", "note"]]
    wanted = {"data": data, "setting": setting, "method": method, "split": split, "metric": metric, "noise": noise}
    for column, value in wanted.items():
        if value is not None:
            known = table[column].unique().tolist()
            keep = np.isclose(table[column], value) if column == "noise" else (table[column] == value).to_numpy()
            if not keep.any():
                raise ValueError(f"{column}: expected one of {', '.join(map(repr, known))}, found {value!r}.")
            table = table[keep]
    return table.reset_index(drop=True)
