/* A probe, drawn or taken from the test items, relaxing in the page's own network. */

const probe = { pixels: null, truth: null, clean: null, item: -1, pen: 0, run: 0 };

/* All neurons of the probe as the task shows it: pixels, task id, class neurons at -1. */
function stateOf(p, task) {
  const state = new Float64Array(p.neurons).fill(-1);
  state.set(shown(p, probe.pixels, task));
  if (p.scene.task_id) state[p.pixels + task] = 1;
  return state;
}

function drawProbe() {
  const p = portrait(), canvas = byId("relax-draw");
  picture(canvas, probe.pixels, p.scene.shape, true);
  if (canvas.matches(":focus-visible")) { // the pen of those who draw by keys
    const context = canvas.getContext("2d"), wide = p.scene.shape[1];
    context.fillStyle = colour(2);
    context.fillRect(probe.pen % wide, Math.floor(probe.pen / wide), 1, 1);
  }
}

function drawScores() {
  const p = portrait(), task = Number(byId("relax-task").value), table = byId("relax-scores");
  if (!p.classes) return void table.replaceChildren(make("caption", "This network has no class neurons: every neuron is its own answer."));
  const head = make("tr"), state = stateOf(p, task);
  head.append(make("td"), ...p.scene.labels.map((label) => make("th", label, { scope: "col" })));
  const said = [];
  const rows = p.networks.map((network, k) => {
    const line = make("tr"), answers = network.answers(state, p.visible, task), top = answers.indexOf(Math.max(...answers));
    said.push(p.scene.labels[top]);
    line.append(make("th", `after task ${k + 1}`, { scope: "row" }), ...answers.map((y, c) => {
      const td = make("td", y.toFixed(2).replace("-", "−"), { class: c === top ? "best" : "", title: `score ${Math.atanh(y).toPrecision(3)}` });
      paint(td, diverging(y));
      return td;
    }));
    return line;
  });
  table.replaceChildren(head, ...rows);
  const truth = probe.truth === null ? "" : ` The item is a ${p.scene.labels[probe.truth]}.`;
  byId("relax-says").textContent = `The network says ${said.map((s, k) => `${s} after task ${k + 1}`).join(", ")}.${truth}`;
}

/* The group that claims the probe. */
function claim() {
  const p = portrait(), task = Number(byId("relax-task").value);
  return p.networks[at.after].claim(stateOf(p, task), task);
}

/* How well every group knows the probe, and which one claims it. */
function drawGroups() {
  const p = portrait(), box = byId("relax-known"), canvas = byId("relax-draw"), task = Number(byId("relax-task").value);
  box.hidden = !p.groups;
  canvas.style.boxShadow = "";
  if (!p.groups) return;
  const network = p.networks[at.after], state = stateOf(p, task), z = network.known(state), first = claim();
  const names = z.map((_, g) => ownerName(p, g, at.after)), places = names.map((name) => name.replace(/^tasks? /, "")), short = (x) => (Math.abs(x) < 10 ? x.toFixed(1) : x.toFixed(0)).replace("-", "−");
  canvas.style.boxShadow = `0 0 0 4px ${colour(first)}`;
  byId("relax-claim").textContent = `After task ${at.after + 1} the group of ${names[first]} claims it` +
    (network.told ? ", as it is told." : `: it lies ${short(Math.abs(z[first]))} deviations ${z[first] < 0 ? "below" : "above"} the mean of what that group has learned.`);
  // Items of other tasks lie from half a deviation to a thousand below 0, what was learned: hence logarithms.
  const at0 = (x) => Math.sign(x) * Math.log10(1 + Math.abs(x)), low = Math.min(...z.map(at0), -1), high = Math.max(...z.map(at0), 0);
  const ticks = [-1e4, -1e3, -100, -10, -1, 0, 1, 10].filter((t) => at0(t) >= low - 0.3 && at0(t) <= high + 0.3);
  const ink = z.map((_, g) => (g === first ? colour(g) : faded(colour(g), 0.35)));
  chart(byId("relax-groups"), [
    { type: "bar", x: places, y: z.map(at0), marker: { color: ink }, hovertext: z.map((x, g) => `${names[g]}: ${short(x)}`), hoverinfo: "text" },
    { mode: "markers+text", x: places, y: z.map(at0), text: z.map((x, g) => (names.length > 12 && g !== first ? " " : short(x))), textposition: z.map((x) => (x < 0 ? "bottom center" : "top center")),
      marker: { color: z.map((_, g) => colour(g)), size: z.map((_, g) => (g === first ? 13 : 8)), line: { color: css("--ink"), width: z.map((_, g) => (g === first ? 2 : 0)) } }, hoverinfo: "skip" },
  ], { showlegend: false, margin: { l: 48, r: 12, t: 12, b: 44 }, xaxis: { type: "category", title: { text: "group of task" } },
    yaxis: { title: { text: "deviations" }, tickvals: ticks.map(at0), ticktext: ticks.map((t) => String(t).replace("-", "−")), range: [low - 0.45, high + (high > 0 ? 0.45 : 0.25)] } },
  `How well each group knows the probe: ${names.map((name, g) => `${name} ${short(z[g])}`).join(", ")}`);
}

/* Frames appear one after another; the last of them says how it ended. */
function relaxNow() {
  const p = portrait(), task = Number(byId("relax-task").value), film = byId("relax-film"), mine = ++probe.run;
  const network = p.networks[at.after].awake(stateOf(p, task), task);
  const { states, converged } = network.relax(stateOf(p, task), 20, byId("relax-order").value);
  const energy = states.map((s) => network.energy(s));
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const ending = () => {
    const last = states[states.length - 1], on = p.scene.labels.filter((_, c) => last[p.visible + c] > 0);
    const classes = p.classes ? ` Class neurons on: ${on.join(", ") || "none"}.` : "";
    byId("relax-says").textContent = (converged ? `At rest after ${states.length - 1} updates.` : "Still moving after 20 updates.") + classes;
  };
  film.replaceChildren();
  const frame = (k) => {
    if (mine !== probe.run) return;
    const figure = make("figure");
    figure.append(picture(make("canvas"), undone(p, states[k].subarray(0, p.pixels), task, -1), p.scene.shape, true),
      make("figcaption", k === 0 ? "probe" : `step ${k}`));
    film.append(figure);
    chart(byId("relax-energy"), [{ x: energy.slice(0, k + 1).map((_, j) => j), y: energy.slice(0, k + 1), mode: "lines+markers", line: { color: colour(0) }, marker: { size: 8 } }],
      { xaxis: { title: { text: `update, in the network after task ${at.after + 1}` }, dtick: 1, range: [-0.3, Math.max(states.length - 1, 1) + 0.3] }, yaxis: { title: { text: "energy" }, exponentformat: "power" } },
      "Energy of the state after each update");
    if (k + 1 === states.length) ending();
    else if (still) frame(k + 1);
    else setTimeout(() => frame(k + 1), 350);
  };
  frame(0);
}

function probeChanged() {
  probe.run++;
  byId("relax-film").replaceChildren();
  empty(byId("relax-energy"), "Press Relax to let the probe go.");
  drawProbe();
  drawScores();
  drawGroups();
}

function takeItem(next) {
  const p = portrait(), task = Number(byId("relax-task").value), each = p.scene.item_classes.length / p.scene.tasks;
  if (next) probe.item = (probe.item + 1) % each;
  const start = (task * each + probe.item) * p.pixels;
  probe.clean = undone(p, p.scene.items.subarray(start, start + p.pixels), task, -127).map((x) => x / 127);
  probe.truth = p.classes ? p.scene.item_classes[task * each + probe.item] : null;
  turnOver();
}

/* The same pixels for the same share, so that the slider can go back. */
function turnOver() {
  const share = Number(byId("relax-noise").value) / 100;
  byId("relax-noise-out").textContent = `${Math.round(100 * share)}%`;
  let state = 12345;
  probe.pixels = probe.clean.map((x) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 < share ? -x : x;
  });
  probeChanged();
}

function startRelaxation() {
  const canvas = byId("relax-draw"), task = byId("relax-task"), noise = byId("relax-noise");
  let ink = 0;
  const put = (place, value) => {
    probe.clean = probe.pixels = Float64Array.from(probe.pixels);
    probe.pixels[place] = value;
    probe.truth = null;
    noise.value = 0;
    byId("relax-noise-out").textContent = "0%";
  };
  const stroke = (event) => {
    const p = portrait(), [high, wide] = p.scene.shape, box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * wide), row = Math.floor(((event.clientY - box.top) / box.height) * high);
    const thick = wide >= 16 ? [0, 1] : [0]; // a pen of two pixels where there are many
    for (const r of thick) for (const c of thick) {
      if (row + r >= 0 && row + r < high && column + c >= 0 && column + c < wide) put((row + r) * wide + column + c, ink);
    }
    drawProbe();
  };
  canvas.addEventListener("pointerdown", (event) => {
    const p = portrait(), [high, wide] = p.scene.shape, box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * wide), row = Math.floor(((event.clientY - box.top) / box.height) * high);
    ink = probe.pixels[Math.min(Math.max(row, 0), high - 1) * wide + Math.min(Math.max(column, 0), wide - 1)] > 0 ? -1 : 1; // beginning on ink rubs out
    canvas.setPointerCapture(event.pointerId);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (ink) stroke(event); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { if (ink) { ink = 0; probeChanged(); } });
  canvas.addEventListener("keydown", (event) => {
    const [high, wide] = portrait().scene.shape, step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
    if (event.key === " ") { put(probe.pen, -Math.sign(probe.pixels[probe.pen]) || 1); probeChanged(); }
    else if (step !== undefined) { const next = probe.pen + step; if (next >= 0 && next < high * wide) probe.pen = next; drawProbe(); }
    else return;
    event.preventDefault();
  });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, drawProbe);
  byId("relax-item").addEventListener("click", () => takeItem(true));
  byId("relax-clear").addEventListener("click", () => { const blank = new Float64Array(portrait().pixels).fill(-1); probe.clean = blank; probe.truth = null; noise.value = 0; turnOver(); });
  byId("relax-go").addEventListener("click", relaxNow);
  task.addEventListener("change", () => (probe.truth === null ? probeChanged() : takeItem(false)));
  noise.addEventListener("input", turnOver);
  networkChanged();
  panels.push(probeChanged);
}

/* Another network may have other tasks and another shape of picture. */
function networkChanged() {
  const p = portrait(), task = byId("relax-task");
  options(task, Array.from({ length: p.scene.tasks }, (_, t) => [t, `task ${t + 1}`]), task.value);
  probe.pen = Math.floor(p.pixels / 2 + p.scene.shape[1] / 2);
  probe.item = -1;
  takeItem(true);
}
