"""What the first and the second start of a program pay for the compiled loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.race import write

PROGRAM = """
import json, time
import torch
from benchmarks.setting import initial, items
theta, batch = initial(torch.float64, memories=16), items(300, torch.float64)
wall, cpu = time.perf_counter(), time.process_time()
from benchmarks.setting import network, optimiser
net, rule = network(20), optimiser()
rule.step(theta, net.gradient(theta, batch), rule.start(theta), 1, net)
print(json.dumps({"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}))
"""


def main() -> None:
    """From `import engramma` with PyTorch already imported to the end of the first training step."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        for start in ("first", "second", "third"):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", PROGRAM],
                env=env,
                capture_output=True,
                text=True,
                check=True,
            )
            rows.append({"start": start, **json.loads(done.stdout)})
            print(
                f"{start:6} start: {rows[-1]['seconds']:.2f} s, {rows[-1]['cpu_seconds']:.2f} s of CPU",
                flush=True,
            )
    write("start", rows)
