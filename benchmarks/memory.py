"""A million patterns of 1,000 bits, recalled from probes with a tenth of them turned over, on two threads.

Each way is a process of its own, whose highest memory is read. All recall the same probes among the same
patterns by the same energy, the sum of (overlap / N)^5: a cube would hold 24,000 patterns without errors.
`engramma` computes in double precision, as it does by default, `single` in single precision. `plain` is what
one would write in PyTorch: patterns as numbers in single precision, two products and the sign, all probes at
once, until nothing changes. It lets a neuron act upon itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from benchmarks.race import write

NEURONS = 1000
LIMIT = 4 * 2**30  # bytes of memory that engramma's process may take at the most
WAYS = ("engramma", "single", "plain")

CODE = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(2)
way, patterns, probes, neurons = sys.argv[1], *map(int, sys.argv[2:5])
def drawn(first, count):
    made = np.random.default_rng((7, first)).integers(0, 2, (count, neurons), dtype=np.int8)
    return torch.from_numpy(2 * made - 1)
blocks = [(first, min(50_000, patterns - first)) for first in range(0, patterns, 50_000)]
truth = drawn(*blocks[0])[:probes].double()
turned = torch.as_tensor(np.random.default_rng(8).random((probes, neurons)) < 0.1)
probe = torch.where(turned, -truth, truth)
start = time.perf_counter()
if way != "plain":
    from engramma.models.associative import AssociativeMemory
    kind = torch.float32 if way == "single" else torch.float64
    memory, warm = (AssociativeMemory(vertex=5, dtype=kind) for _ in range(2))
    for block in blocks:
        memory.store(drawn(*block))
    warm.store(truth)
    for some in (probe, probe.repeat(200, 1)):  # compiled, and its threads there
        warm.recall(some)
    memory.recall(probe[0])  # the patterns' bits neuron by neuron, once for all recalls
    def recall(states):
        end = memory.recall(states)
        return end.state, int(end.steps.max()) + 1
else:
    x = torch.empty(patterns, neurons)
    for first, count in blocks:
        x[first:first + count] = drawn(first, count)
    def recall(states):
        s, updates = states.float(), 0
        while True:
            updates += 1
            h = s @ x.T / neurons
            new = torch.sign(h.pow(4) @ x)
            if torch.equal(new, s) or updates == 20:
                return s, updates
            s = new
stored = time.perf_counter() - start
start, busy = time.perf_counter(), time.process_time()
end, updates = recall(probe)
took, busy = time.perf_counter() - start, time.process_time() - busy
high = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
right = (end.double() == truth).all(1).double().mean().item()
print(json.dumps({"store_seconds": stored, "recall_seconds": took, "cpu_seconds": busy, "updates": updates,
                  "recalled": right, "peak_bytes": high}))
"""


def measured(way: str, patterns: int, probes: int) -> dict[str, Any]:
    told = [way, str(patterns), str(probes), str(NEURONS)]
    done = subprocess.run([sys.executable, "-c", CODE, *told], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    found["patterns_a_second"] = patterns * probes * found["updates"] / found["recall_seconds"]
    print(f"{way:9} {probes} probes among {patterns:,} patterns: {found['recall_seconds']:.1f} s, "
          f"{found['cpu_seconds']:.1f} s of the processors, {found['updates']} updates, "
          f"{found['patterns_a_second'] / 1e6:.0f} million patterns a second, {found['recalled']:.3f} "
          f"recalled exactly, {found['peak_bytes'] / 2**30:.2f} GiB", flush=True)  # fmt: skip
    return {"way": way, "patterns": patterns, "probes": probes, **found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--patterns", type=int, default=1_000_000)
    parser.add_argument("--probes", type=int, default=32)
    asked = parser.parse_args()
    rows = [measured(way, asked.patterns, asked.probes) for way in WAYS]
    each = {row["way"]: row["cpu_seconds"] / row["updates"] for row in rows}
    ratios = {way: each["plain"] / each[way] for way in WAYS}
    within = bool(rows[0]["peak_bytes"] <= LIMIT)
    print(
        f"an update takes plain PyTorch {ratios['engramma']:.1f} times the processors' seconds that it takes "
        f"engramma, {ratios['single']:.1f} times in single precision; within 4 GiB: {within}"
    )
    write("memory", rows, neurons=NEURONS, cpu_ratios=ratios, within_4_GiB=within)
