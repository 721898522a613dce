/* The address keeps what is chosen, so that a link shows another reader the same. */

const controls = (section) => [...section.querySelectorAll("select, input")].filter((control) => control.id);
const valueOf = (control) => (control.type === "checkbox" ? String(control.checked) : control.value);

/* All controls of the sections in which one was moved: they depend on each other. */
function addressNow(begun) {
  const told = new URLSearchParams();
  if (CHOSEN) told.set("of", CHOSEN);
  for (const section of document.querySelectorAll("main section")) {
    const all = controls(section);
    if (all.some((control) => begun.get(control.id) !== valueOf(control))) all.forEach((control) => told.set(control.id, valueOf(control)));
  }
  if (sorting.part !== null) told.set("sort", `${sorting.part}-${sorting.column}-${sorting.falling ? "falling" : "rising"}`);
  if (at.chosen !== null && String(at.chosen) !== begun.get("memory")) told.set("memory", at.chosen);
  return told;
}

function restore() {
  const [part, column, way] = (KEPT.get("sort") || "").split("-");
  if ((part === "label" || part in PARTS) && Number(column) < TABLE.vertices.length) {
    sorting = { part, column: Number(column), falling: way !== "rising" };
    drawTable();
  }
  for (const control of document.querySelectorAll("main section :is(select, input)")) {
    const value = KEPT.get(control.id);
    if (value === null || value === valueOf(control)) continue;
    if (control.tagName === "SELECT" && ![...control.options].some((o) => o.value === value)) continue; // of another report
    if (control.type === "checkbox") control.checked = value === "true";
    else control.value = value;
    control.dispatchEvent(new Event(["range", "search"].includes(control.type) ? "input" : "change", { bubbles: true }));
  }
  const memory = byId("memory-grid")?.querySelector(`[data-memory="${Number(KEPT.get("memory") ?? NaN)}"]`);
  if (memory) choose(Number(memory.dataset.memory));
  byId(KEPT.get("at"))?.scrollIntoView();
}

function startAddress() {
  const begun = new Map([...document.querySelectorAll("main section")].flatMap(controls).map((control) => [control.id, valueOf(control)]));
  begun.set("memory", String(at.chosen));
  restore();
  const write = (place) => {
    const told = addressNow(begun);
    if (place) told.set("at", place);
    const hash = told.size ? `#${told}` : "";
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
  };
  for (const kind of ["change", "input", "click", "keyup"]) document.addEventListener(kind, (event) => {
    const link = event.target.closest?.("nav a");
    if (!link) return void (event.target.closest?.("a, #choice") || write());
    if (kind !== "click") return;
    event.preventDefault(); // a place alone would take the rest out of the address
    const place = link.getAttribute("href").slice(1);
    byId(place).scrollIntoView();
    write(place);
  });
  window.addEventListener("hashchange", () => { if (location.hash.includes("=")) location.reload(); });
}

/* Another choice is another page of the same file: everything begins anew with its runs. */
function startChoice() {
  const which = byId("choice");
  byId("choices").hidden = DATA.choices.length < 2;
  options(which, DATA.choices.map(({ name, summary }, k) => [k, `${name} (${summary.runs} run${summary.runs === 1 ? "" : "s"})`]), CHOSEN);
  which.addEventListener("change", () => {
    history.replaceState(null, "", `#of=${which.value}`);
    location.reload();
  });
}
