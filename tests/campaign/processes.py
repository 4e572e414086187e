"""Processes that are killed, interrupted, out of space, without rights, or two at once: at every moment one of old, new or resumable."""

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from campaign.files import command_line
from campaign.odd import K, Rng, pick
from campaign.tally import Tally
from pdcc import VolMaxDCC
from pdcc.inference import svi

# What changes the disk: a process dies before or after one of these.
CHANGES = ("replace", "unlink", "mkdir", "rmdir", "write", "fsync", "truncate")
WHOLE = {"model", "pairs", "run.json"}
NOBODY = 65534


class Bench:
    """A directory with features, pairs, and the models that runs of seed 0 and 1 end in when nothing happens to them."""

    def __init__(self, home: Path):
        self.home, self.run = home, home / "run"
        rng = np.random.default_rng(0)
        y = np.arange(90) % K
        X = 3 * np.eye(K, 4)[y] + rng.normal(size=(90, 4))
        pairs = rng.integers(90, size=(400, 2))
        np.save(home / "x.npy", X)
        rows = [f"{a},{b},{int(y[a] == y[b])}" for a, b in pairs]
        (home / "pairs.csv").write_text("\n".join(["i,j,similar", *rows]))
        os.chmod(home, 0o755)
        svi.CHECKPOINT_SECONDS = 0.01
        self.model, self.seconds = {}, 0.0
        for seed in (0, 1):
            begin = time.monotonic()
            assert self.go("--seed", str(seed)) == 0
            self.seconds = time.monotonic() - begin
            self.model[seed] = self.found()
            shutil.rmtree(self.run)

    def start(self, *more: str, before: Callable[[], None] | None = None) -> int:
        """A child that fits; its process id."""
        arguments = ["-q", "fit", str(self.home / "x.npy"), str(self.home / "pairs.csv"), "-k", str(K), "-o", str(self.run), "--epochs", "30", "--init", "kmeans", "--scale", "standard", "--confusion", "stochastic", "--volume", "0", *more]  # fmt: skip
        child = os.fork()
        if child:
            return child
        signal.alarm(0)
        code = 99
        try:
            if before is not None:
                before()
            code, said = command_line(arguments)
            with suppress(OSError):
                (self.home / f"said-{os.getpid()}").write_text(said)
        finally:
            os._exit(code)

    def wait(self, child: int) -> int:
        """Its exit code, or minus the signal it died of."""
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def said(self, child: int) -> str:
        file = self.home / f"said-{child}"
        text = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
        return text

    def go(self, *more: str) -> int:
        """Fit in a child, left alone."""
        child = self.start(*more)
        code = self.wait(child)
        self.said(child)
        return code

    def found(self) -> str | None:
        """The name of the model, which carries its hash, of a run that loads; None where there is no finished run."""
        if not (self.run / "run.json").exists():
            return None
        if not np.isfinite(VolMaxDCC.load(self.run).memberships_).all():
            return "not finite"
        names = [p.name for p in self.run.glob("model-*.safetensors")]
        return names[0] if len(names) == 1 else f"{len(names)} models"

    def loaded(self) -> str | None:
        """The same, where files of an earlier run may still lie about: the one that its description names."""
        import json

        if not (self.run / "run.json").exists():
            return None
        VolMaxDCC.load(self.run)
        return str(json.loads((self.run / "run.json").read_text())["files"]["model.safetensors"]["name"])

    def clean(self) -> str | None:
        """What else is in the run directory than a run."""
        other = {p.name.split("-")[0] for p in self.run.rglob("*")} ^ WHOLE
        return f"found {sorted(other)} too many or missing" if other else None

    @contextmanager
    def fresh(self, rng: Rng, old: bool | None = None) -> Iterator[bool]:
        """A place for a run: nothing there, or an ``old`` run of seed 0; by chance where it is not said."""
        shutil.rmtree(self.run, ignore_errors=True)
        old = bool(rng.random() < 0.5) if old is None else old
        if old:
            assert self.go() == 0
        yield old
        shutil.rmtree(self.run, ignore_errors=True)

    def goes_on(self, old: bool) -> str | None:
        """After a death in the middle of a fit of seed 1: the old run, the new one, or one to resume; and the same bits in the end."""
        now = self.loaded()
        if now not in (self.model[1], self.model[0] if old else None):
            return f"neither the old run nor the new: {now}"
        code = self.go("--resume", "--seed", "1")
        if code == 2 and old and now == self.model[0]:  # it had not begun yet
            code = self.go("--overwrite", "--seed", "1")
        if code != 0:
            return f"cannot go on: exit code {code}"
        if self.found() != self.model[1]:
            return f"ended at {self.found()} instead of {self.model[1]}"
        return self.clean()


def killed(bench: Bench, rng: Rng, signals: tuple[int, ...] = (signal.SIGKILL,)) -> str | None:
    """A fit dies at a random moment."""
    with bench.fresh(rng) as old:
        child = bench.start("--seed", "1", *(["--overwrite"] if old else []))
        time.sleep(rng.random() * 1.1 * bench.seconds)
        sent = pick(rng, list(signals))
        with suppress(ProcessLookupError):
            os.kill(child, sent)
        code = bench.wait(child)
        said = bench.said(child)
        if code not in (0, -sent, 130):
            return f"exit code {code}: {said}"
        if code == 130 and "Interrupted" not in said:
            return f"interrupted without a word: {said}"
        return bench.goes_on(old)


def interrupted(bench: Bench, rng: Rng) -> str | None:
    """The same by what a terminal, a supervisor or a closed connection sends."""
    return killed(bench, rng, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def at_step(bench: Bench, rng: Rng, step: int, over: bool) -> str | None:
    """A first fit, or one ``over`` an old run, kills itself at the step-th change of the disk: before it, if odd, or after it."""
    count = 0

    def arm() -> None:
        def dying(real: Callable[..., object]) -> Callable[..., object]:
            def change(*args: object, **options: object) -> object:
                nonlocal count
                count += 1
                if step == 2 * count - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    return real(*args, **options)
                finally:  # what is refused, such as a directory that is there, is a step as well
                    if step == 2 * count:
                        os.kill(os.getpid(), signal.SIGKILL)

            return change

        svi.CHECKPOINT_SECONDS = 1e9  # one at the end: those in between are as many as there is time for
        for name in CHANGES:
            setattr(os, name, dying(getattr(os, name)))

    with bench.fresh(rng, over) as old:
        child = bench.start("--seed", "1", *(["--overwrite"] if old else []), before=arm)
        code = bench.wait(child)
        bench.said(child)
        if code == 0:
            return "past the last step"
        return f"exit code {code}" if code != -signal.SIGKILL else bench.goes_on(old)


def without_space(bench: Bench, rng: Rng) -> str | None:
    """No file may grow beyond a few bytes: the code for no space, the old run as it was, and on it goes when there is room."""
    limit = int(10 ** rng.uniform(1, 4))
    with bench.fresh(rng) as old:
        child = bench.start("--seed", "1", *(["--overwrite"] if old else []), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
        code = bench.wait(child)
        said = bench.said(child)
        if code not in (0, 3):
            return f"exit code {code} with {limit} bytes: {said}"
        if code == 3 and limit > 2000 and "make room" not in said:
            return f"no word about space: {said}"
        return bench.goes_on(old)


def without_rights(bench: Bench, rng: Rng) -> str | None:
    """A directory that may not be written to: one sentence, and everything as it was."""
    with bench.fresh(rng) as old:
        bench.run.mkdir(exist_ok=True)
        before = {p.name: p.read_bytes() for p in bench.run.iterdir()}

        def arm() -> None:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)

        os.chmod(bench.run, 0o555)
        try:
            code = bench.wait(bench.start("--seed", "1", *(["--overwrite"] if old else []), before=arm))
        finally:
            os.chmod(bench.run, 0o755)
        after = {p.name: p.read_bytes() for p in bench.run.iterdir()}
        return None if code == 2 and after == before else f"exit code {code}, {sorted(after)} for {sorted(before)}"


def two_at_once(bench: Bench, rng: Rng) -> str | None:
    """Two fits of two seeds in one directory: one of them is refused by name or comes after, and no run is a mixture."""
    with bench.fresh(rng):
        shutil.rmtree(bench.run, ignore_errors=True)
        first = bench.start("--seed", "0")
        time.sleep(rng.random() * bench.seconds)
        how = pick(rng, [["--overwrite"], ["--resume"], []])
        second = bench.start("--seed", "1", *how)
        if rng.random() < 0.5:
            time.sleep(rng.random() * bench.seconds)
            with suppress(ProcessLookupError):
                os.kill(second, signal.SIGKILL)
        codes = bench.wait(first), bench.wait(second)
        words = bench.said(first), bench.said(second)
        if not set(codes) <= {0, 2, -signal.SIGKILL}:
            return f"exit codes {codes}: {words}"
        if codes[0] == 2 and "in use by" not in words[0]:
            return f"refused for another reason: {words[0]}"
        if bench.loaded() not in (bench.model[0], bench.model[1], None):
            return f"a mixture: {bench.loaded()}"
        if codes[0] == 0 and codes[1] != 0 and bench.loaded() != bench.model[0]:
            return "the first finished and its run is not there"
        code = bench.go("--overwrite", "--seed", "1")
        return (f"cannot go on: exit code {code}" if code else None) or bench.clean()


def _at_every_step(bench: Bench, tally: Tally, seed: int, share: float, over: bool) -> None:
    """Die at one change of the disk after the other, until a fit gets through; at two of them for a smaller share."""
    found, step = "", 1

    def attempt() -> str | None:
        nonlocal found
        found = at_step(bench, np.random.default_rng([seed, 300, step]), step, over) or ""
        return None if found == "past the last step" else found or None

    while found != "past the last step" and (share >= 1 or step <= 2):
        tally.attempt("killed at a change of the disk" + (", overwriting" if over else ""), step, attempt)
        step += 1


def run(tally: Tally, seed: int, share: float, home: Path) -> None:
    """A ``share`` of all attempts, and at least one kill at every change of the disk where all of them are asked for."""
    bench = Bench(home)
    for over in (False, True):
        _at_every_step(bench, tally, seed, share, over)
    kinds: dict[str, tuple[Callable[[Bench, Rng], str | None], int]] = {
        "kill -9 at a random moment": (killed, 110), "other signals": (interrupted, 30), "no space left": (without_space, 20), "no rights": (without_rights, 6),
        "two processes, one run": (two_at_once, 30),
    }  # fmt: skip
    for number, (kind, (make, count)) in enumerate(kinds.items()):
        for k in range(max(1, round(share * count))):
            tally.attempt(kind, k, lambda: make(bench, np.random.default_rng([seed, 200 + number, k])))  # noqa: B023
    sys.stdout.flush()
