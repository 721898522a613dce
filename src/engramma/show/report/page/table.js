/* Table 2 as a heat map: ours, our forgetting, the paper's, the difference; sorted by any column. */

const TABLE = DATA.table;
const PARTS = { here: "mean", forgetting: "forgetting", paper: "paper", difference: "difference" };
const HEADS = { here: "here", forgetting: "forgetting here", paper: "the paper", difference: "here − the paper" };
let sorting = { part: null, column: 0, falling: true };

function tableRows() {
  const part = byId("table-filter").value.trim().toLowerCase();
  const rows = TABLE.rows.filter((row) =>
    (!byId("table-run").checked || row.run) && row.label.toLowerCase().includes(part));
  if (sorting.part === null) return rows;
  const key = (row) => (sorting.part === "label" ? row.label : row.cells[sorting.column][PARTS[sorting.part]]);
  return rows.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null); // what is missing stays below
    return (sorting.falling ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
  });
}

function sortButton(text, part, column) {
  const here = sorting.part === part && sorting.column === column;
  const head = make("th", "", { scope: "col", "aria-sort": here ? (sorting.falling ? "descending" : "ascending") : "none" });
  const button = make("button", text + (here ? (sorting.falling ? " ▼" : " ▲") : ""), { type: "button", "data-sort": `${part}-${column}` });
  button.addEventListener("click", () => {
    sorting = { part, column, falling: here ? !sorting.falling : part !== "label" };
    drawTable();
    byId("heat").querySelector(`[data-sort="${part}-${column}"]`).focus();
  });
  head.append(button);
  return head;
}

const ours = (part) => part === "here" || part === "forgetting";

function heatCell(cell, part) {
  const value = cell[PARTS[part]];
  if (value === null) {
    const td = make("td", !ours(part) ? "–" : cell.mixed.length ? "several" : cell.diverged ? `${cell.diverged} diverged` : "–", { class: "none" });
    if (ours(part) && cell.mixed.length) td.title = `${cell.trials} runs, which differ in ${cell.mixed.join(", ")}: no one mean is theirs`;
    return td;
  }
  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(3);
  const td = make("td", part === "difference" ? signed(value) : value.toFixed(3));
  if (part === "difference") {
    if (cell.agrees !== null) td.append(make("small", cell.agrees ? "✓ agrees" : "differs"));
    paint(td, diverging(value / 0.3));
  } else {
    const spread = { here: cell.sd, forgetting: cell.forgetting_sd, paper: cell.paper_sd }[part];
    if (spread !== null) td.append(make("small", `± ${spread.toFixed(3)}`));
    paint(td, sequential(value));
  }
  if (ours(part)) {
    const lost = cell.diverged ? `; ${cell.diverged} diverged` : "";
    const strength = cell.strength === null ? "" : `; strength ${cell.strength.toPrecision(3)}`;
    td.title = `${cell.trials} run${cell.trials === 1 ? "" : "s"}${strength}${lost}`;
  }
  return td;
}

/* The paper prints accuracies alone: of forgetting there is ours. */
function shownParts() {
  const view = byId("table-view").value, measure = byId("table-measure").value;
  const accuracy = view === "all" ? ["here", "paper", "difference"] : [view];
  return measure === "forgetting" ? ["forgetting"] : measure === "both" ? [accuracy[0], "forgetting", ...accuracy.slice(1)] : accuracy;
}

function drawTable() {
  const parts = shownParts();
  byId("table-view").disabled = byId("table-measure").value === "forgetting";
  const only = byId("table-run").checked;
  const has = (name, k) => TABLE.rows.some((row) => (row.run || !only) &&
    (row.cells[k][name] !== null || (ours(name === "mean" ? "here" : name) && row.cells[k].mixed.length)));
  const columns = (part) => TABLE.vertices.map((v, k) => k).filter((k) => has(PARTS[part], k));
  const groups = make("tr"), heads = make("tr"), body = make("tbody");
  groups.append(make("td"));
  heads.append(sortButton("Method", "label", 0));
  for (const part of parts.filter((name) => columns(name).length)) {
    groups.append(make("th", HEADS[part], { class: "group", colspan: columns(part).length, scope: "colgroup" }), make("td", "", { class: "gap" }));
    heads.append(...columns(part).map((k) => sortButton(`n=${TABLE.vertices[k]}`, part, k)), make("td", "", { class: "gap" }));
  }
  for (const row of tableRows()) {
    const line = make("tr");
    line.append(make("th", row.label, { scope: "row" }));
    for (const part of parts) line.append(...columns(part).map((k) => heatCell(row.cells[k], part)), make("td", "", { class: "gap" }));
    body.append(line);
  }
  if (!body.children.length) {
    const line = make("tr");
    line.append(make("td", "No row to show: nothing was run, or no name has this in it.", { colspan: 20, class: "none" }));
    body.append(line);
  }
  const head = make("thead");
  head.append(groups, heads);
  byId("heat").replaceChildren(head, body);
}

/* The rows that are shown, a line for each cell with runs or a printed number. */
function asCsv() {
  const names = ["trials", "diverged", "strength", "mean", "sd", "forgetting", "forgetting_sd", "paper", "paper_sd", "difference", "agrees"];
  const quoted = (x) => (/[",\r\n]/.test(x) ? `"${x.replace(/"/g, '""')}"` : x);
  const lines = tableRows().flatMap((row) => row.cells.flatMap((cell, k) => (cell.trials || cell.paper !== null
    ? [[row.label, TABLE.vertices[k], ...names.map((name) => cell[name] ?? ""), cell.mixed.join(" ")]] : [])));
  return [["method", "vertex", ...names, "differing"], ...lines].map((line) => line.map(String).map(quoted).join(",")).join("\r\n") + "\r\n";
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", "", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function startTable() {
  const unlike = DATA.summary.unlike_paper;
  byId("table-note").textContent =
    "Mean of the runs after the last task, ± their standard deviation. Press a heading to sort. " +
    TABLE.said +
    (unlike.length ? `The paper's runs had other settings (${unlike.join(", ")}): compare shapes, not numbers.` : "");
  byId("table-left").textContent = (TABLE.differ.length ? `Beside method and vertex these runs differ in ${TABLE.differ.join(", ")}. ` : "") + (TABLE.left_out.length ? `Left out: ${TABLE.left_out.join("; ")}.` : "");
  byId("table-csv").addEventListener("click", () => download("engramma.csv", asCsv()));
  byId("table-filter").addEventListener("input", drawTable);
  for (const id of ["table-run", "table-measure", "table-view"]) byId(id).addEventListener("change", drawTable);
  if (window.innerWidth < 500) byId("table-view").value = "here";
  panel(drawTable);
}
