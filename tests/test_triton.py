"""The Triton programs without a GPU: under their interpreter, and compiled for one."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial
from engramma.kernels.reference import Descent
from engramma.network import DenseMemory, Items


def test_programs_agree_with_the_specification() -> None:
    """In a process of its own: the interpreter must be chosen before Triton is imported."""
    pytest.importorskip("triton")
    script = Path(__file__).with_name("triton_cases.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all cases agree" in done.stdout


class Compiled:
    """Stands for a program: what would be launched is compiled for a GPU instead, which need not be there."""

    def __init__(self, program: Any, capability: int, made: list[Any]) -> None:
        self.program, self.capability, self.made = program, capability, made

    def __getitem__(self, grid: tuple[int, ...]) -> Compiled:
        return self

    def __call__(self, *arguments: Any, **told: Any) -> None:
        triton = pytest.importorskip("triton")
        from triton.backends.compiler import GPUTarget

        names = self.program.arg_names
        given = dict(zip(names, arguments, strict=False)) | {k: told.pop(k) for k in names if k in told}
        kinds = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16"}
        signature, constants = {}, {}
        for place, (name, param) in enumerate(zip(names, self.program.params, strict=True)):
            value = given[name]
            if param.is_constexpr:
                signature[name], constants[(place,)] = "constexpr", value
            else:
                signature[name] = kinds[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        source = triton.compiler.ASTSource(fn=self.program, signature=signature, constexprs=constants)
        self.made.append(triton.compile(source, target=GPUTarget("cuda", self.capability, 32), options=told))


@pytest.mark.parametrize(
    ("f", "capability"),
    [(LeakyRectifiedPolynomial(2), 80), (LeakyRectifiedPolynomial(20), 90), (Polynomial(2.5), 90)],
)
def test_programs_compile_for_a_gpu(
    f: Interaction, capability: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    from engramma.kernels.triton import gpu as triton_gpu
    from engramma.kernels.triton import mixed as triton_mixed

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = ("_scores", "_aim", "_pull", "_step", "_split", "_joined")
    made: dict[str, list[Any]] = {name: [] for name in names}
    for name, programs in made.items():
        module = triton_mixed if name in ("_split", "_joined") else triton_gpu
        monkeypatch.setattr(module, name, Compiled(getattr(module, name), capability, programs))
    for kernel, auto in itertools.product((triton_gpu, triton_mixed), (False, True)):
        theta = torch.zeros(2, 16, 32, dtype=torch.float64)
        state = torch.ones(2, 4, 32, dtype=torch.float64)
        target = state if auto else state[..., -10:]
        weight, labels = torch.ones(2, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.long)
        batch = Items(kernel.prepare(state, theta.dtype), target, weight, labels)
        net = DenseMemory(32, 10, f, autoassociative=auto, kernel=kernel)
        net.gradient(theta, batch)
        net.scores(theta, batch.probe)
        kernel.step(theta, theta, theta, Descent(0.1, 0.6, 22, 1.0, "gradient" if auto else "velocity"))
    for name, programs in made.items():
        assert programs, name
        assert all(program.asm["cubin"] for program in programs), name
    # What is added up in scores is rounded as it is written, the same for on and off.
    assert not any(program.metadata.enable_fp_fusion for program in made["_scores"])
    assert all(program.metadata.enable_fp_fusion for program in made["_pull"])
