/* One row of the table against every other, run by run of the same seed. */

function drawPairs() {
  const { first, rows } = DATA.comparison, head = make("thead"), body = make("tbody"), line = make("tr");
  const signed = (x) => (x === null ? "–" : (x < 0 ? "−" : "+") + Math.abs(x).toFixed(3));
  const chance = (p) => (p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));
  line.append(...[`${first} less`, "where", "difference", "95 % interval", "p", "p after Holm", "seeds"].map((name) => make("th", name, { scope: "col" })));
  head.append(line);
  for (const row of rows) {
    const cells = make("tr"), difference = make("td", signed(row.difference));
    if (row.difference !== null) paint(difference, diverging(row.difference / 0.3));
    const interval = row.low === null ? "–" : `${signed(row.low)} to ${signed(row.high)}`;
    cells.append(make("th", row.other, { scope: "row" }), make("td", row.where), difference,
      ...[interval, chance(row.p), chance(row.p_holm), String(row.seeds)].map((text) => make("td", text)));
    body.append(cells);
  }
  byId("pairs").replaceChildren(head, body);
}

function startPairs() {
  const { rows, notes } = DATA.comparison;
  byId("comparison-says").replaceChildren(...notes.map((note) => make("p", `${note[0].toUpperCase()}${note.slice(1)}.`)));
  if (!rows.length) {
    const box = make("div");
    byId("pairs").parentElement.replaceWith(box);
    return empty(box, "Nothing to compare: it takes two methods that were run on the same seeds.");
  }
  byId("comparison-note").textContent = `Difference of the average ${DATA.summary.score.replace("_", " ")} after the last task, run by run of the same seed. The interval is by bootstrap, p by turning signs over; Holm's correction is for all comparisons here.`;
  panel(drawPairs);
}
