/* Diagnostics, the theme, and the start of everything. */

function drawDiagnostics() {
  const p = portrait(), tasks = p.scene.tasks, afters = Array.from({ length: tasks }, (_, k) => String(k + 1));
  const stacked = (rows, words, id, title) => chart(byId(id), rows.map(({ name, y, ink, pattern }) => ({ type: "bar", name, x: afters, y,
    marker: { color: ink, pattern: { shape: pattern || "" } } })), { barmode: "stack", legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" }, xaxis: { type: "category", title: { text: "after task" } }, yaxis: { title: { text: title } } }, words);
  byId("diag-note").textContent = `Of ${nameOf(p)}, the network chosen above; measured with test items and ${p.census[0].probes} random probes after every task.`;
  const count = (k, t) => p.owner.slice(k * p.memories, (k + 1) * p.memories).filter((o) => o === t).length;
  stacked([...Array(owners(p)).keys()].map((own) => ({ name: ownerName(p, own, tasks - 1), y: afters.map((_, k) => count(k, own)), ink: colour(own) })),
    "Memories owned by each task", "diag-owner", "memories");
  const kinds = [["true", 2, ""], ["mixed", 4, "/"], ["spurious", 5, "x"], ["unsettled", 6, "."]];
  stacked(kinds.map(([name, ink, pattern]) => ({ name, y: p.census.map((c) => c[name]), ink: colour(ink), pattern })),
    "Shares of random probes by where they come to rest", "diag-census", "share of probes");
  chart(byId("diag-prototypes"), DATA.prototypes.map((line, k) => ({ name: literal(line.label), mode: "lines+markers", x: line.x, y: line.y,
    line: { color: colour(k), dash: DASHES[k % DASHES.length] }, marker: { symbol: MARKS[k % MARKS.length], size: 8 } })),
    { xaxis: { title: { text: "vertex n" } }, yaxis: { title: { text: "prototype index" }, range: [0, 1] }, showlegend: false }, "Prototype index over n");
  byId("diag-legend").replaceChildren(...DATA.prototypes.map((line, k) => {
    const entry = make("span"), mark = make("b", GLYPHS[k % GLYPHS.length]);
    mark.style.color = colour(k);
    entry.append(mark, make("span", ` ${line.label}`));
    return entry;
  }));
  drawCoverage();
}

/* A row a network that keeps items or makes pseudo-items, of the vertex chosen; a column a class. */
function drawCoverage() {
  const box = byId("diag-coverage"), vertex = portrait().vertex, keep = DATA.portraits.filter((q) => q.coverage && q.vertex === vertex), labels = keep.length ? DATA.scenes[keep[0].scene].labels : [];
  const rows = keep.filter((q) => DATA.scenes[q.scene].labels.join() === labels.join());
  if (!rows.length) return empty(box, `No method of these networks at n=${vertex} keeps items or makes pseudo-items.`);
  byId("diag-vertex").textContent = `, at n=${vertex}`;
  const over = (q, c, pick) => q.coverage[pick].map((row) => row[c]).filter((x) => x !== null);
  const overlap = rows.map((q) => labels.map((_, c) => { const all = over(q, c, "overlap"); return all.length ? mean(all) : null; }));
  const count = rows.map((q) => labels.map((_, c) => over(q, c, "count").reduce((a, b) => a + b, 0)));
  const narrow = box.clientWidth < 480, seeds = unique(rows.map((q) => q.seed)).length > 1;
  const names = rows.map((q) => `${literal(q.label)}${seeds ? `, seed ${q.seed}` : ""}`);
  box.style.height = `${Math.max(270, 110 + 26 * rows.length)}px`;
  chart(box, [{ type: "heatmap", z: overlap, x: labels.map(literal), y: names, text: count,
    texttemplate: labels.length <= 12 && !narrow ? "%{text}" : "", textfont: { size: 10 }, zmin: 0, zmax: 1, showscale: !narrow, colorbar: { title: { text: "overlap" }, thickness: 10 },
    hovertemplate: "%{y}<br>class %{x}: mean overlap %{z:.2f}, %{text} kept<extra></extra>", colorscale: CIVIDIS.map((c, k) => [k / (CIVIDIS.length - 1), `rgb(${c.join(",")})`]) }],
    { xaxis: { type: "category", title: { text: narrow ? "class (light: overlap 1, dark: 0)" : "class (numbers: items kept)" } }, yaxis: { type: "category", autorange: "reversed", tickfont: { size: narrow ? 9 : 10 } } },
    "Overlap of each class's test items with the nearest kept item, by network and class");
}

function startHead() {
  byId("title").textContent = DATA.title;
  const { runs, diverged, shared } = DATA.summary;
  const facts = Object.entries(shared).map(([name, value]) => `${name} ${value}`);
  byId("summary").textContent = [`${runs} run${runs === 1 ? "" : "s"}${diverged ? `, ${diverged} diverged` : ""}`, ...facts].join(" · ");
  byId("foot").textContent = `engramma ${DATA.version}. The paper: McAlister, Robins and Szymanski, Sequential Learning in the Dense Associative Memory.`;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let forced = null;
  const apply = () => { document.documentElement.dataset.theme = forced || (dark.matches ? "dark" : "light"); };
  const redraw = () => { apply(); panels.forEach((draw) => draw()); };
  dark.addEventListener("change", redraw);
  byId("theme").addEventListener("click", () => { forced = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; redraw(); });
  apply();
}

startHead();
startChoice();
startTable();
startPairs();
startCurves();
startSearches();
if (DATA.portraits.length) {
  startExplorer((network) => {
    if (network) { networkChanged(); drawDiagnostics(); } else { drawGroups(); if (byId("relax-film").children.length) relaxNow(); }
  });
  startRelaxation();
  panel(drawDiagnostics);
} else {
  const why = `No memories in these records: run with --keep-memories to see them here. ${DATA.notes.join(" ")}`;
  for (const id of ["memories", "relaxation", "diagnostics"]) {
    const box = make("div");
    byId(id).replaceChildren(byId(id).querySelector("h2"), box);
    empty(box, why);
  }
}
for (const box of document.querySelectorAll(".scroll, .film, #memory-grid")) hinted(box);
startAddress();
window.engramma = { asCsv, Memory, Groups, unpack, portrait, claim, at };
