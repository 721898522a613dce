/* The memories of one network as pictures, after every task; and what was measured of them. */

const at = { which: 0, after: 0, task: 0, chosen: null }; // what all panels of memories look at
const loaded = new Map();

/* A portrait with its numbers unpacked, once. */
function portrait() {
  if (!loaded.has(at.which)) {
    const p = DATA.portraits[at.which], s = DATA.scenes[p.scene];
    const [tasks, memories, visible] = p.visible.shape, numbers = unpack(p.visible), classes = unpack(p.class_weights);
    const theta = Array.from({ length: tasks }, (_, k) => {
      const one = new Float64Array(memories * p.neurons);
      for (let m = 0; m < memories; m++) {
        for (let i = 0; i < visible; i++) one[m * p.neurons + i] = numbers[(k * memories + m) * visible + i] * p.scale;
        for (let c = 0; c < p.classes; c++) one[m * p.neurons + visible + c] = classes[(k * memories + m) * p.classes + c];
      }
      return one;
    });
    const more = Object.fromEntries(["owner", "favourite", "strength", "share", "likeness"].map((n) => [n, unpack(p[n])]));
    const scene = { ...s, shows: unpack(s.shows), undone: unpack(s.undone), items: unpack(s.items), item_classes: unpack(s.item_classes) };
    loaded.set(at.which, { ...p, ...more, scene, theta, memories, visible, pixels: s.shape[0] * s.shape[1], label: p.label,
      networks: theta.map((one, k) => (p.groups ? new Groups(one, p.neurons, p.classes, p.interaction, p.beta, groupsAfter(p.groups, k))
        : new Memory(one, p.neurons, p.interaction, p.beta))) });
  }
  return loaded.get(at.which);
}

function groupsAfter(groups, k) {
  const [, count] = groups.mean.shape, row = (packed) => unpack(packed).subarray(k * count, (k + 1) * count);
  return { ...groups, mean: row(groups.mean), deviation: row(groups.deviation), owner: groups.owner.slice(0, k + 1) };
}

/* Those that memories may belong to, numbered: the tasks, or groups of memories, named by what they have learned. */
const owners = (p) => (p.groups ? p.groups.mean.shape[1] : p.scene.tasks);
function tasksOf(p, own, after) {
  return p.groups ? p.groups.owner.slice(0, after + 1).flatMap((g, t) => (g === own ? [t] : [])) : [own];
}
function ownerName(p, own, after) {
  const tasks = unique(tasksOf(p, own, after)).map((t) => t + 1);
  return tasks.length ? `task${tasks.length > 1 ? "s" : ""} ${tasks.join(", ")}` : "no task yet";
}

/* Pixels as the picture was before the task moved them. */
function undone(p, pixels, task, off = 0) {
  return Float64Array.from({ length: p.pixels }, (_, q) => {
    const from = p.scene.undone[task * p.pixels + q];
    return from < 0 ? off : pixels[from];
  });
}
function shown(p, pixels, task) {
  return Float64Array.from({ length: p.pixels }, (_, q) => {
    const from = p.scene.shows[task * p.pixels + q];
    return from < 0 ? -1 : pixels[from];
  });
}
const memoryOf = (p, m) => p.theta[at.after].subarray(m * p.neurons, (m + 1) * p.neurons);
const brightness = (p) => { const top = p.scale * 127; return (x) => x / top; };
const nameOf = (p) => `${p.label} · n=${p.vertex} · seed ${p.seed}`;

function order(p) {
  const rank = byId("memory-sort").value, all = Array.from({ length: p.memories }, (_, m) => m), base = at.after * p.memories;
  if (rank === "none") return all;
  const by = (name) => (m) => p[name][base + m];
  const last = (x) => (x < 0 ? 1e9 : x);
  return all.sort((a, b) => (rank === "strength" ? 0 : last(by(rank)(a)) - last(by(rank)(b))) || by("strength")(b) - by("strength")(a));
}

/* The task for which a memory is un-permuted: the one chosen, or the first that its group has learned. */
const taskFor = (p, m) => (at.task === "own" ? tasksOf(p, p.owner[at.after * p.memories + m], at.after)[0] ?? 0 : at.task);

function drawMemories() {
  const p = portrait(), grid = byId("memory-grid"), bright = brightness(p), keep = document.activeElement?.dataset?.memory;
  // Few memories are drawn large enough to stand as high as what is told of one beside them.
  grid.style.setProperty("--tile", `${Math.round(Math.min(Math.max(Math.sqrt(600000 / p.memories), 36), 190))}px`);
  byId("memory-after-out").textContent = String(at.after + 1);
  grid.replaceChildren(...order(p).map((m, place) => {
    const own = p.owner[at.after * p.memories + m];
    const words = `memory ${m + 1}, ${served(p, own)}`;
    const tile = make("button", "", { type: "button", role: "option", title: words, "aria-label": words, "data-memory": m,
      tabindex: (at.chosen === null ? place === 0 : m === at.chosen) ? "0" : "-1", "aria-selected": String(m === at.chosen) });
    tile.style.borderColor = own < 0 ? "transparent" : colour(own);
    tile.append(picture(make("canvas"), undone(p, memoryOf(p, m).subarray(0, p.pixels).map(bright), taskFor(p, m)), p.scene.shape));
    return tile;
  }));
  if (keep !== undefined) grid.querySelector(`[data-memory="${keep}"]`)?.focus();
  const now = p.owner.slice(at.after * p.memories, (at.after + 1) * p.memories);
  const kinds = [...Array(owners(p)).keys(), -1].map((own) => [own, now.filter((o) => o === own).length]);
  byId("memory-legend").replaceChildren(...kinds.filter(([own, count]) => count || !p.groups).map(([own, count]) => {
    const entry = make("span"), swatch = make("i");
    swatch.style.background = own < 0 ? css("--line") : colour(own);
    entry.append(swatch, make("span", `${own < 0 ? "no task" : ownerName(p, own, at.after)}: ${count}`));
    return entry;
  }), make("span", "weights: blue below 0, orange above"));
  drawChosen();
}

/* Of whom a memory is: in words, with the share of its support that goes there. */
function served(p, own, base = null) {
  if (own < 0) return p.groups ? "of no task yet" : "serves no task";
  const name = ownerName(p, own, at.after);
  const share = base === null ? "" : (100 * tasksOf(p, own, at.after).reduce((sum, t) => sum + p.share[base * p.scene.tasks + t], 0)).toFixed(0);
  return (p.groups ? `of the group of ${name}` : `serves ${name}`) + (base === null ? "" : ` (${share}% of its support${p.groups ? " is for its items" : ""})`);
}

function bars(element, names, values, words) {
  return chart(element, [{ type: "bar", x: names.map(literal), y: values, marker: { color: values.map((v) => (v < 0 ? COLOURS[0] : COLOURS[1])) } }],
    { margin: { l: 40, r: 6, t: 6, b: 30 }, xaxis: { type: "category" } }, words);
}

function drawChosen() {
  const p = portrait(), box = byId("memory-detail"), m = at.chosen;
  if (m === null || m >= p.memories) return void box.replaceChildren(make("p", "Choose a memory to see its weights and the items nearest to it.", { class: "empty" }));
  const weights = memoryOf(p, m), base = at.after * p.memories + m, own = p.owner[base], favourite = p.favourite[base];
  const facts = [`importance ${(100 * p.strength[base]).toFixed(1)}% of all support`,
    served(p, own, base),
    ...(favourite < 0 ? [] : [`most for class ${p.scene.labels[favourite]}`]), `correlation with the nearest item ${p.likeness[base].toFixed(2)}`];
  const parts = [make("h3", `Memory ${m + 1} after task ${at.after + 1}`),
    picture(make("canvas", "", { class: "large" }), undone(p, weights.subarray(0, p.pixels).map(brightness(p)), taskFor(p, m)), p.scene.shape),
    make("p", facts.join("; ") + ".", { class: "note" })];
  const charts = [];
  const add = (title, names, values) => {
    const div = make("div", "", { class: "chart" });
    parts.push(make("h3", title), div);
    charts.push(() => bars(div, names, values, `${title} of memory ${m + 1}`));
  };
  if (p.classes) add("Class weights", p.scene.labels, Array.from(weights.subarray(p.visible)));
  if (p.scene.task_id) add("Task-id weights", Array.from({ length: p.scene.tasks }, (_, t) => `task ${t + 1}`), Array.from(weights.subarray(p.pixels, p.pixels + p.scene.tasks)));
  const near = make("div", "", { class: "near" });
  near.append(...nearest(p, weights).map(({ task, item, r }) => {
    const figure = make("figure"), start = (task * p.scene.items.length) / p.scene.tasks + item * p.pixels;
    const each = p.scene.item_classes.length / p.scene.tasks;
    figure.append(picture(make("canvas"), undone(p, p.scene.items.subarray(start, start + p.pixels), task, -127).map((x) => x / 127), p.scene.shape, true),
      make("figcaption", `${p.classes ? p.scene.labels[p.scene.item_classes[task * each + item]] + " · " : ""}task ${task + 1}\nr = ${r.toFixed(2)}`));
    return figure;
  }));
  parts.push(make("h3", "Nearest test items"), near);
  box.replaceChildren(...parts);
  charts.forEach((draw) => draw());
}

/* The six items that correlate most with a memory's pixels, of all tasks. */
function nearest(p, weights) {
  const found = [], each = p.scene.item_classes.length / p.scene.tasks, middle = mean(Array.from(weights.subarray(0, p.pixels)));
  for (let task = 0; task < p.scene.tasks; task++) {
    for (let item = 0; item < each; item++) {
      const x = p.scene.items.subarray((task * each + item) * p.pixels, (task * each + item + 1) * p.pixels);
      let sx = 0, sxx = 0, sxw = 0, sww = 0;
      for (let i = 0; i < p.pixels; i++) { const w = weights[i] - middle; sx += x[i]; sxx += x[i] * x[i]; sxw += x[i] * w; sww += w * w; }
      const spread = Math.sqrt((sxx - (sx * sx) / p.pixels) * sww);
      found.push({ task, item, r: spread > 0 ? sxw / spread : 0 });
    }
  }
  return found.sort((a, b) => b.r - a.r).slice(0, 6);
}

function choose(m) {
  at.chosen = m;
  for (const tile of byId("memory-grid").children) {
    const mine = Number(tile.dataset.memory) === m;
    tile.setAttribute("aria-selected", String(mine));
    tile.tabIndex = mine ? 0 : -1;
  }
  drawChosen();
}

function moveFocus(event) {
  const tiles = [...byId("memory-grid").children], here = tiles.indexOf(document.activeElement);
  if (here < 0) return;
  const across = tiles.filter((t) => t.offsetTop === tiles[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -here, End: tiles.length - 1 - here }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const next = tiles[Math.min(Math.max(here + step, 0), tiles.length - 1)];
  tiles[here].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function startExplorer(changed) {
  const which = byId("memory-which"), after = byId("memory-after"), task = byId("memory-task"), play = byId("memory-play");
  options(which, DATA.portraits.map((p, k) => [k, nameOf(p)]));
  const fill = () => {
    const p = portrait(), names = Array.from({ length: p.scene.tasks }, (_, t) => [t, `task ${t + 1}`]);
    if (p.groups) names.unshift(["own", "each its own"]);
    at.after = Math.min(at.after, p.scene.tasks - 1);
    at.task = p.groups ? "own" : Math.min(Number(at.task) || 0, p.scene.tasks - 1);
    if (at.chosen !== null && at.chosen >= p.memories) at.chosen = null;
    after.max = p.scene.tasks;
    after.value = at.after + 1;
    options(task, names, at.task);
    const frame = p.groups ? "The frame's colour is the group of the memory: each task has learned with a group of its own, and the others slept."
      : "The frame's colour is the task a memory serves: the one whose items it supports most.";
    byId("memory-note").textContent = `${p.memories} memories of ${p.neurons} neurons. ${frame} ${DATA.notes.join(" ")}`;
  };
  let clock = null;
  const stop = () => { clearInterval(clock); clock = null; play.textContent = "Play"; play.setAttribute("aria-pressed", "false"); };
  const go = (k) => { at.after = k; after.value = k + 1; drawMemories(); changed(); };
  which.addEventListener("change", () => { at.which = Number(which.value); fill(); drawMemories(); changed(true); });
  after.addEventListener("input", () => { stop(); go(Number(after.value) - 1); });
  task.addEventListener("change", () => { at.task = task.value === "own" ? "own" : Number(task.value); drawMemories(); });
  byId("memory-sort").addEventListener("change", drawMemories);
  play.addEventListener("click", () => {
    if (clock !== null) return stop();
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    clock = setInterval(() => go((at.after + 1) % portrait().scene.tasks), 1000);
  });
  byId("memory-grid").addEventListener("click", (event) => {
    const tile = event.target.closest("[data-memory]");
    if (tile) choose(Number(tile.dataset.memory));
  });
  byId("memory-grid").addEventListener("keydown", moveFocus);
  at.chosen = 0;
  fill();
  at.chosen = order(portrait())[0];
  panel(drawMemories);
}
