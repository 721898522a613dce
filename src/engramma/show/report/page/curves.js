/* Scores over training, and the answers of searches. */

function startCurves() {
  const box = byId("curve-chart");
  if (!DATA.curves.length) {
    empty(box, "No curves in these records: run with a curve (for example every 10 epochs) to see training here.");
    byId("curves").querySelector(".controls").hidden = true;
    return;
  }
  const [method, vertex, seed] = ["curve-method", "curve-vertex", "curve-seed"].map(byId);
  const fill = () => {
    const those = DATA.curves.filter((c) => c.label === method.value);
    const vertices = unique(those.map((c) => c.vertex)).sort((a, b) => a - b);
    options(vertex, vertices.map((v) => [v, `n=${v}`]), vertex.value);
    const seeds = unique(those.filter((c) => String(c.vertex) === vertex.value).map((c) => c.seed));
    options(seed, [["all", seeds.length > 1 ? `all ${seeds.length}` : "the only one"], ...(seeds.length > 1 ? seeds.map((s) => [s, String(s)]) : [])], seed.value);
  };
  options(method, unique(DATA.curves.map((c) => c.label)).map((m) => [m, m]));
  fill();
  const draw = () => {
    const runs = DATA.curves.filter((c) => c.label === method.value && String(c.vertex) === vertex.value &&
      (seed.value === "all" || String(c.seed) === seed.value));
    const epoch = Array.from(unpack(runs[0].epoch)), tasks = runs[0].score.shape[1];
    // Runs are drawn together only where they were looked at after the same epochs.
    const alike = runs.filter((c) => c.score.shape.join() === runs[0].score.shape.join()).map((c) => unpack(c.score));
    const traces = [], shapes = [];
    for (let t = 0; t < tasks; t++) {
      const columns = epoch.map((_, e) => alike.map((s) => s[e * tasks + t]).filter(Number.isFinite));
      if (alike.length > 1) {
        traces.push({ x: [...epoch, ...epoch.slice().reverse()], fill: "toself", mode: "none", hoverinfo: "skip", showlegend: false,
          y: [...columns.map((c) => Math.max(...c)), ...columns.map((c) => Math.min(...c)).reverse()], fillcolor: faded(colour(t), 0.2) });
      }
      traces.push({ x: epoch, y: columns.map((c) => (c.length ? mean(c) : null)), name: `task ${t + 1}`, mode: "lines",
        line: { color: colour(t), width: 2.5, dash: DASHES[t % DASHES.length] } });
      shapes.push({ type: "rect", xref: "x", yref: "paper", x0: t * runs[0].epochs, x1: (t + 1) * runs[0].epochs, y0: 0, y1: 1,
        fillcolor: faded(colour(t), 0.07), line: { width: 0 }, layer: "below" });
    }
    chart(box, traces, { shapes, xaxis: { title: { text: "epoch" } }, yaxis: { title: { text: literal(DATA.summary.score.replace("_", " ")) }, range: [0, 1.02] } },
      `Score of every task over training, ${method.value}, n=${vertex.value}`);
  };
  for (const select of [method, vertex, seed]) select.addEventListener("change", () => { fill(); draw(); });
  panel(draw);
}

function startSearches() {
  const box = byId("search-chart");
  if (!DATA.searches.length) {
    empty(box, "No search in these records: runs at three or more strengths, learning rates or temperatures make one.");
    byId("searches").querySelector(".controls").hidden = true;
    return;
  }
  const kinds = unique(DATA.searches.map((s) => `${s.label} · ${s.setting}`));
  const which = byId("search-which"), measure = byId("search-measure");
  options(which, kinds.map((k) => [k, k]));
  const draw = () => {
    const those = DATA.searches.filter((s) => `${s.label} · ${s.setting}` === which.value);
    const traces = [];
    those.forEach((search, k) => {
      const line = search.lines[measure.value], ink = colour(k);
      const top = line.mean.map((m, i) => m + line.sd[i]), low = line.mean.map((m, i) => m - line.sd[i]);
      traces.push({ x: [...line.x, ...line.x.slice().reverse()], y: [...top, ...low.reverse()], fill: "toself", mode: "none",
        fillcolor: faded(ink, 0.18), hoverinfo: "skip", showlegend: false });
      traces.push({ x: line.x, y: line.mean, name: `n=${search.vertex} (${search.runs} runs)`, mode: "lines+markers",
        line: { color: ink, dash: DASHES[k % DASHES.length] }, marker: { symbol: MARKS[k % MARKS.length], size: 7 } });
    });
    const title = measure.selectedOptions[0].textContent;
    chart(box, traces, { xaxis: { title: { text: those[0].setting }, type: those[0].scale, exponentformat: "power", ...(those[0].scale === "log" ? { dtick: 1 } : {}) },
      yaxis: { title: { text: literal(DATA.summary.score.replace("_", " ")) } }, showlegend: true }, `${title} against ${those[0].setting}, ${those[0].label}`);
  };
  for (const select of [which, measure]) select.addEventListener("change", draw);
  panel(draw);
}
