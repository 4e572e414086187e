"""Runs that were altered, and places where nothing may be written: one clear error each, and nothing lost."""

import json
import os

import numpy as np
import pytest
from helpers import make_blobs

from pdcc import VolMaxDCC
from pdcc.cli import main
from pdcc.errors import ArtifactError
from pdcc.fitted import FitReport
from pdcc.storage.files import check_output, file_hash, load_state, save_state, write_atomic
from pdcc.storage.model import DESCRIPTION, load_run, save_run
from pdcc.storage.run import Source as RunSource
from pdcc.storage.run import begin, read_data
from pdcc.training import Shape, Source, Start


def command(capsys, *arguments: object) -> tuple[int, str]:
    """Exit code and what the command line said on stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0), capsys.readouterr().err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with X.npy, pairs.csv and a finished run."""
    home = tmp_path_factory.mktemp("home")
    blobs = make_blobs(n=60, n_pairs=200, seed=0)
    np.save(home / "X.npy", blobs.X)
    rows = [f"{i},{j},{int(s)}" for (i, j), s in zip(blobs.answers.pairs, blobs.answers.similar, strict=True)]
    (home / "pairs.csv").write_text("\n".join(["i,j,similar", *rows]))
    how = ["--epochs", "2", "--confusion", "none", "--volume", "0", "--init", "kmeans", "--scale", "standard"]
    with pytest.raises(SystemExit):
        main(["fit", str(home / "X.npy"), str(home / "pairs.csv"), "-k", "3", "-o", str(home / "run"), *how])
    return home


@pytest.fixture
def run(made, tmp_path):
    """A copy of that run that a test may spoil."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in (made / "run").iterdir():
        write_atomic(copy / file.name, file.read_bytes())
    return copy


def forged(run, **changes):
    """Rewrite the run with other tensors, so that every hash fits."""
    flat, body = load_run(run)
    own = ("format", "versions", "files", "description_sha256")
    save_run(run, flat | changes, {k: v for k, v in body.items() if k not in own})


def test_the_run_is_read_as_it_was_written(run):
    assert len(read_data(run)) == 200
    assert VolMaxDCC.load(run).memberships_.shape == (60, 3)


def test_altered_answers_are_refused(run, capsys):
    answers = next(run.glob("pairs-*"))
    parts, meta = load_state(answers)
    parts["similar"][:20] = ~parts["similar"][:20]
    save_state(answers, parts, meta)
    with pytest.raises(ArtifactError, match="altered or damaged"):
        read_data(run)
    code, said = command(capsys, "diagnose", run)
    assert code == 2
    assert "altered or damaged" in said
    answers.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        read_data(run)


@pytest.mark.parametrize("name", ["membership.layers.0.weight", "memberships", "agreement"])
def test_weights_that_are_no_numbers_are_refused_though_every_hash_fits(run, name):
    flat, _ = load_run(run)
    key = next(k for k in flat if k.endswith(name))
    spoiled = flat[key].clone()
    spoiled.view(-1)[0] = np.nan
    forged(run, **{key: spoiled})
    with pytest.raises(ArtifactError, match="expected finite numbers"):
        VolMaxDCC.load(run)


@pytest.mark.parametrize(
    "text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "[1]", "null", '"x"', "{", ""]
)
def test_descriptions_of_another_form_are_refused(run, made, text):
    (run / DESCRIPTION).write_text(text)
    with pytest.raises(ArtifactError, match=r"run\.json"):
        VolMaxDCC.load(run)
    (run / "unfinished").mkdir()
    (run / "unfinished" / "begun.json").write_text(text)
    source = RunSource.of(made / "X.npy", made / "pairs.csv", None)
    with pytest.raises(ArtifactError, match=r"begun\.json"):
        begin(run, source, {}, resume=True, overwrite=False)
    assert (run / DESCRIPTION).read_text() == text


def test_a_begun_run_with_lists_for_objects_is_another_run(run, made):
    (run / "unfinished").mkdir()
    (run / "unfinished" / "begun.json").write_text(json.dumps({"source": [1], "options": [2]}))
    with pytest.raises(ArtifactError, match="cannot resume"):
        begin(run, RunSource.of(made / "X.npy", made / "pairs.csv", None), {"seed": 1}, resume=True, overwrite=False)


def test_results_replace_nothing_but_ordinary_files(run, made, tmp_path, capsys):
    """A device, a pipe, a directory, the features, and a run's own files stay what they are."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    features = tmp_path / "X.npy"
    features.write_bytes((made / "X.npy").read_bytes())
    linked = tmp_path / "also-X.npy"
    os.link(features, linked)
    before = {file: file_hash(file) for file in (features, *run.iterdir())}
    places = {
        "/dev/null": "a device or a pipe", pipe: "a device or a pipe", tmp_path: "a directory", features: "what is to be read",
        linked: "what is to be read", run / DESCRIPTION: "a file of a run", next(run.glob("pairs-*")): "a file of a run",
        next(run.glob("model-*")): "a file of a run",
    }  # fmt: skip
    for place, what in places.items():
        code, said = command(capsys, "predict", run, features, "-o", place)
        assert code == 2
        assert f"found {what}" in said
    assert {file: file_hash(file) for file in before} == before
    assert pipe.is_fifo()


def test_results_are_written_through_links(run, made, tmp_path, capsys):
    (tmp_path / "real").mkdir()
    link = tmp_path / "memberships.csv"
    link.symlink_to(tmp_path / "real" / "m.csv")
    for _ in range(2):  # a link to nothing yet, then one to a file
        assert command(capsys, "predict", run, made / "X.npy", "-o", link)[0] == 0
        assert link.is_symlink()
        assert (tmp_path / "real" / "m.csv").read_text().startswith("item,label,m0")
    assert check_output(tmp_path / "new.csv") == tmp_path / "new.csv"


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("plain", Start(Source.KMEANS)),
        ("guided, own shapes", Start(Source.GUIDED, Shape.OWN)),
        ("grouped, one shape, rearranged", Start(Source.GRAPH, Shape.SHARED)),
        (None, None),
    ],
)
def test_reports_of_version_02_are_read(kind, start):
    """Their fields have other names; what they say is kept."""
    blobs = make_blobs(n=60, n_pairs=100)
    small = VolMaxDCC(3, confusion="stochastic", volume=0.0, hidden=(4,), init="kmeans", epochs=1, random_state=0)
    report = small.fit(blobs.X, blobs.answers.pairs, blobs.answers.similar).report_
    new = report.to_dict()
    useful = {k: v for k, v in new["useful"].items() if k != "failures"}
    gone = {"kmeans": 0.4, "trouble": ["Too few."], "fell_back": None, "mixed": []}
    old = {k: v for k, v in new.items() if k not in ("n_compared", "scale", "start", "own_answers", "useful")}
    old |= {"start": "unit scale, plain K-means", "start_kind": kind, "n_new": 7, "useful": useful | gone}
    found = FitReport.from_dict(json.loads(json.dumps(old)))
    assert (found.start, found.scale, found.n_compared) == (start, "unit scale", 7)
    assert found.useful.failures == ("Too few.",)
    assert (found.chosen, found.epochs) == (report.chosen, report.epochs)
