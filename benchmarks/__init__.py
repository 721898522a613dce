"""Side-by-side measurements: each prints ratios from one run and writes them to benchmarks/results/."""
