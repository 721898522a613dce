/* What every panel uses: the data, elements, colours, charts. */

const byId = (id) => document.getElementById(id);
const DATA = JSON.parse(byId("data").textContent);

/* What the address keeps: "#of=1&table-view=here". A plain "#table" is a place on the page. */
const KEPT = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");

/* Runs of one data and setting at a time: those of another stand in no column and no line beside them. */
const CHOSEN = DATA.choices[Number(KEPT.get("of"))] ? Number(KEPT.get("of")) : 0;
Object.assign(DATA, DATA.choices[CHOSEN]);
DATA.portraits = DATA.portraits.filter((p) => p.of === CHOSEN);

/* An element; text is always text. */
function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function unpack(packed) {
  const raw = atob(packed.bytes);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const kinds = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, f4: Float32Array };
  return new kinds[packed.type](bytes.buffer); // the file is little-endian, as is every browser's machine
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", text, { value })));
  if (entries.some(([value]) => String(value) === String(chosen))) select.value = chosen;
}

function empty(element, why) {
  const chart = element;
  if (chart.drawn) { // it may still be drawing itself: it ends that out of sight
    element = make("div", "", { id: chart.id, class: "chart low" });
    chart.replaceWith(element);
    chart.drawn.then(() => Plotly.purge(chart));
  }
  element.classList.add("empty");
  element.replaceChildren(make("p", why));
}

/* Okabe and Ito's colours, told apart by the colour-blind, in an order that keeps neighbours far apart. */
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A600"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "x", "star"], GLYPHS = ["●", "■", "◆", "▲", "✖", "★"];
const colour = (k) => COLOURS[k % COLOURS.length];
const faded = (hex, alpha) => `rgba(${[1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)).join(",")},${alpha})`;

const CIVIDIS = [[0, 34, 78], [53, 69, 107], [102, 105, 112], [148, 142, 119], [201, 183, 103], [255, 234, 70]];
const BLUE = [33, 102, 172], ORANGE = [217, 95, 2];
const mix = (a, b, t) => a.map((x, k) => Math.round(x + (b[k] - x) * t));
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const zero = () => css("--zero").split(",").map(Number);

function sequential(t) {
  const x = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1), k = Math.min(Math.floor(x), CIVIDIS.length - 2);
  return mix(CIVIDIS[k], CIVIDIS[k + 1], x - k);
}
/* -1 blue, 0 the ground, 1 orange */
const diverging = (t, middle = zero()) => mix(middle, t < 0 ? BLUE : ORANGE, Math.min(Math.abs(t), 1));

function paint(cell, rgb) {
  const [r, g, b] = rgb.map((x) => (x / 255 <= 0.04045 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  cell.style.background = `rgb(${rgb.join(",")})`;
  cell.style.color = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/* Values from -1 to 1 as a picture: weights in blue and orange, items and states as ink on paper. */
function picture(canvas, values, [high, wide], ink = false) {
  canvas.width = wide;
  canvas.height = high;
  const context = canvas.getContext("2d"), image = context.createImageData(wide, high), middle = zero();
  const dark = document.documentElement.dataset.theme === "dark", [off, on] = dark ? [[44, 49, 56], [240, 243, 246]] : [[255, 255, 255], [26, 31, 38]];
  const tone = ink ? (x) => mix(off, on, (x + 1) / 2) : (x) => diverging(x, middle);
  for (let p = 0; p < high * wide; p++) image.data.set([...tone(values[p]), 255], 4 * p);
  context.putImageData(image, 0, 0);
  return canvas;
}

/* Plotly reads some markup in names; this shows them letter by letter. */
const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function chart(element, traces, layout, words) {
  if (element.classList.contains("empty")) { element.classList.remove("empty"); element.replaceChildren(); }
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", words);
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
  const full = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("--ink"), size: 12, family: "system-ui, sans-serif" },
    margin: { l: 48, r: 12, t: 12, b: 44 }, dragmode: false,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, ...layout,
  };
  for (const name of Object.keys({ xaxis: 1, yaxis: 1, ...layout })) {
    if (/^[xy]axis/.test(name)) full[name] = { ...axis, ...(layout[name] || {}) };
  }
  element.drawn = Plotly.react(element, traces, full, { responsive: true, displayModeBar: false });
  return element.drawn;
}

/* A box that scrolls says so for as long as something of it is out of sight. */
function hinted(box) {
  const says = make("p", "", { class: "more", "aria-hidden": "true" }); // a screen reader reads all of it anyway
  box.after(says);
  const look = () => {
    const right = box.scrollWidth - box.clientWidth - box.scrollLeft > 2, left = box.scrollLeft > 2;
    const down = box.scrollHeight - box.clientHeight - box.scrollTop > 2, up = box.scrollTop > 2;
    box.classList.toggle("more-right", right);
    box.classList.toggle("more-down", down);
    says.textContent = right ? "There is more to the right: scroll sideways →" : left ? "← There is more to the left" :
      down ? "There is more below: scroll ↓" : up ? "There is more above ↑" : "";
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  new MutationObserver(look).observe(box, { childList: true, subtree: true });
  look();
}

/* Panels draw themselves again when the colours change. */
const panels = [];
function panel(draw) { panels.push(draw); draw(); }
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const unique = (values) => [...new Set(values)];
