"""python -m campaign [--seed 0] [--share 1] [--part inputs] [--write docs/reliability.md]: prints a table, and exits with 1 on any fault."""

import argparse
import datetime
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch

from campaign import files, inputs, processes, repeats
from campaign.tally import Tally

PARTS: dict[str, ModuleType] = {"inputs": inputs, "files": files, "processes": processes, "repeats": repeats}
BEGIN, END = "<!-- campaign -->", "<!-- end of campaign -->"


def run_part(name: str, seed: int, share: float) -> Tally:
    """One part, in a process of its own: one that dies is a fault, too."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as home:
        note = Path(home) / "tally.json"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                logging.getLogger("pdcc").setLevel(logging.CRITICAL)
                (Path(home) / "work").mkdir()
                PARTS[name].run(tally, seed, share, Path(home) / "work")
                note.write_text(json.dumps([tally.attempts, tally.refused, tally.faults]))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            attempts, refused, tally.faults = json.loads(note.read_text())
            tally.attempts.update(attempts)
            tally.refused.update(refused)
        else:
            tally.attempts[name] += 1
            tally.fault(name, 0, f"the whole part ended with {code}")
    return tally


def as_table(tallies: dict[str, Tally]) -> str:
    """One row for every kind of attempt."""
    rows = ["| attempts | how many | of which refused by a typed error | faults |", "|---|---|---|---|"]
    total = [0, 0, 0]
    for tally in tallies.values():
        for kind, count in tally.attempts.items():
            numbers = [count, tally.refused[kind], sum(f["kind"] == kind for f in tally.faults)]
            total = [a + b for a, b in zip(total, numbers, strict=True)]
            rows.append(f"| {kind} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
    return "\n".join([*rows, "| all | " + " | ".join(f"{n:,}" for n in total) + " |"])


def main() -> int:
    """0: no fault."""
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of all attempts")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; repeat for several")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    given = parser.parse_args()
    began = time.monotonic()
    tallies = {name: run_part(name, given.seed, given.share) for name in given.part or PARTS}
    table = as_table(tallies)
    minutes = (time.monotonic() - began) / 60
    stamp = f"{datetime.date.today()}, seed {given.seed}, share {given.share:g}, {minutes:.0f} minutes."
    print(f"{table}\n\n{stamp}")
    faults = [fault for tally in tallies.values() for fault in tally.faults]
    for fault in faults[:50]:
        print(f"\nFAULT in {fault['kind']}, number {fault['number']}:\n{fault['what']}")
    if given.write is not None:
        page = given.write.read_text()
        head, rest = page.split(BEGIN)
        given.write.write_text(f"{head}{BEGIN}\n{table}\n\n{stamp}\n{END}{rest.split(END)[1]}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
