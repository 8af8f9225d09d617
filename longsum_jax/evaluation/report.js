"use strict";
const SIGNIFICANT = 0.05;
const ROW_HEIGHT = 56; // pixels, as in the style sheet
const SPARE_ROWS = 8; // outside of the view
const KEPT_CHUNKS = 6;
const MOST_POINTS = 600; // of a cloud
const SVG = "http://www.w3.org/2000/svg";

const at = (id) => document.getElementById(id);
let index; // all but the documents, see report.py
const chosen = { metric: "", system: 0, key: "score", descending: false };
let matching = null; // numbers of the documents that a search found, or null
let order = []; // numbers of the documents that the table shows

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Documents

const chunks = new Map(); // the latest ones last

async function unpack(id) {
  const packed = Uint8Array.from(atob(at(id).textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function chunkOf(number) {
  const last = index.chunks.findLastIndex((start) => start <= number);
  const chunk = chunks.get(last) ?? unpack(`chunk-${last}`);
  chunks.delete(last);
  chunks.set(last, chunk);
  if (chunks.size > KEPT_CHUNKS) chunks.delete(chunks.keys().next().value);
  return chunk;
}

async function documentOf(number) {
  const start = index.chunks.findLast((first) => first <= number);
  return (await chunkOf(number))[number - start];
}

// Numbers

const size = () => index.documents.id.length;
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => `${Math.round(100 * share)} %`;
const exactPercent = (share) => `${(100 * share).toFixed(1)} %`;
const fixed = (value) => value.toFixed(2).replace("-", "\u2212");
const signed = (value) => (value < 0 ? "" : "+") + fixed(value);
const range = ([low, high]) => `${fixed(low)} to ${fixed(high)}`;
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const mean = (values) => total(values) / values.length;
const isDifferent = (found) => found.p_value < SIGNIFICANT;

function chance(p) {
  return p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`;
}

function quantile(sorted, share) {
  return sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)];
}

// Round numbers between two others, about as many as asked for.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step / 1e6; n++) found.push(n * step);
  return found;
}

function scale([low, high], [start, stop]) {
  const slope = (stop - start) / (high - low || 1);
  return (value) => start + (value - low) * slope;
}

// The first screen

function joined(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

function verdict() {
  const metric = chosen.metric;
  const values = index.systems.map((system) => system.values[metric]);
  const [first, ...others] = index.systems;
  if (!others.length) {
    return [`${first.name} has a ${metric} of ${fixed(values[0])}.`, ""];
  }
  const best = index.systems[values.indexOf(Math.max(...values))];
  const tested = others.filter((system) => metric in system.against);
  const different = tested.filter((system) => isDifferent(system.against[metric]));
  if (others.length > 1) {
    const alike = tested.filter((system) => !different.includes(system));
    const parts = [];
    if (different.length) parts.push(`${first.name} differs significantly from ${joined(different.map((system) => system.name))}.`);
    if (alike.length) parts.push(`No difference was found between ${first.name} and ${joined(alike.map((system) => system.name))}.`);
    return [`${best.name} has the highest ${metric}, ${fixed(Math.max(...values))}.`, parts.join(" ")];
  }
  const found = others[0].against[metric];
  const worse = best === first ? others[0] : first;
  const by = Math.abs(values[0] - values[1]);
  if (!found) return [`${best.name} is ${fixed(by)} above ${worse.name} in ${metric}.`, "This metric has no test."];
  const ends = [found.low, found.high].map((end) => (best === first ? end : -end)).sort((a, b) => a - b);
  if (isDifferent(found)) {
    return [
      `${best.name} scores ${fixed(by)} higher than ${worse.name} in ${metric}.`,
      `The difference is significant (${chance(found.p_value)}) and probably lies between ${fixed(ends[0])} and ${fixed(ends[1])}.`,
    ];
  }
  return [
    `No difference in ${metric} was found between ${first.name} and ${others[0].name}.`,
    `The values differ by ${fixed(by)}, which may be chance (${chance(found.p_value)}). So many documents show differences from about ${fixed(found.smallest)} on.`,
  ];
}

function showBoard() {
  const metric = chosen.metric;
  [at("verdict").textContent, at("reason").textContent] = verdict();
  const ends = index.systems.flatMap((system) => system.intervals[metric] ?? [system.values[metric]]);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const pad = (high - low || 1) * 0.06;
  const rows = index.systems.map((system, number) => {
    const parts = [
      element("span", { className: "name", textContent: system.name }),
      element("span", { className: "value", textContent: fixed(system.values[metric]) }),
      track(system, number, [low - pad, high + pad]),
      element("span", { className: "difference soft", textContent: difference(system, number) }),
    ];
    return element("li", { className: number ? "" : "first" }, ...parts);
  });
  at("board").replaceChildren(...rows);
  const { level, rounds, test } = index.sampling;
  const tested = { randomization: "paired approximate randomization", bootstrap: "paired bootstrap" }[test];
  at("board-note").textContent =
    `Bars are ${100 * level} % intervals over documents. Differences are tested by ${tested}, ${whole(rounds)} rounds` +
    (index.systems.length > 2 ? ", adjusted for the number of systems (Holm)." : ".");
}

function difference(system, number) {
  if (number === 0) return index.systems.length > 1 ? "the others are compared with this one" : "";
  const found = system.against[chosen.metric];
  if (!found) return "not tested";
  const text = `${signed(-found.difference)} [${range([-found.high, -found.low])}], ${chance(found.p_value)}`;
  return isDifferent(found) ? `${text}, significant` : `${text}, may be chance`;
}

function track(system, number, domain) {
  const interval = system.intervals[chosen.metric];
  const place = scale(domain, [1, 99]);
  const value = system.values[chosen.metric];
  const name = interval ? `${fixed(value)}, interval from ${range(interval)}` : fixed(value);
  const made = drawn("svg", { class: `track s${number}`, role: "img", "aria-label": name });
  made.append(drawn("line", { class: "axis", x1: "0%", x2: "100%", y1: "50%", y2: "50%" }));
  if (interval) {
    const [x1, x2] = interval.map((end) => `${place(end)}%`);
    made.append(drawn("line", { class: `s${number} whisker`, x1, x2, y1: "50%", y2: "50%", "stroke-width": 2 }));
  }
  made.append(drawn("circle", { class: `s${number} dot`, cx: `${place(value)}%`, cy: "50%", r: 4.5 }));
  return made;
}

function showScores() {
  const head = element("tr", {}, element("th", { textContent: "Metric", scope: "col" }));
  for (const system of index.systems) head.append(element("th", { textContent: system.name, scope: "col" }));
  const rows = index.columns.map((column) => {
    const cells = index.systems.map((system) => {
      const interval = system.intervals[column];
      const found = system.against[column];
      const star = found && isDifferent(found) ? "*" : "";
      const cell = element("td", {}, fixed(system.values[column]) + star);
      if (interval) cell.append(element("span", { className: "interval", textContent: range(interval) }));
      return cell;
    });
    return element("tr", {}, element("th", { textContent: column, scope: "row" }), ...cells);
  });
  const missing = index.unsupported.map((counts, number) => {
    const sentences = total(index.sentences[number + 1]);
    return element("td", { textContent: sentences ? exactPercent(total(counts) / sentences) : "" });
  });
  rows.push(element("tr", {}, element("th", { textContent: "unsupported sentences", scope: "row" }), ...missing));
  at("scores").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  const notes = [];
  if (index.systems.length > 1) notes.push(`* differs from ${index.systems[0].name} at p < ${SIGNIFICANT}.`);
  for (const system of index.systems) {
    if (system.empty) notes.push(`${system.name}: ${system.empty} empty summaries, scored as they are.`);
  }
  at("scores-note").textContent = [...notes, ...index.signatures].join(" ");
}

// Plots

const HEIGHT = 240;
const EDGES = { top: 8, right: 10, bottom: 40, left: 40 };

function frame(width, height, x, y, labels) {
  const [left, bottom] = [EDGES.left, height - EDGES.bottom];
  const made = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": labels.name });
  const toX = scale(x, [left, width - EDGES.right]);
  const toY = scale(y, [bottom, EDGES.top]);
  for (const value of ticks(...y, 4)) {
    made.append(drawn("line", { class: "axis", x1: left, x2: width - EDGES.right, y1: toY(value), y2: toY(value) }));
    made.append(drawn("text", { x: left - 6, y: toY(value) + 4, "text-anchor": "end" }, labels.y(value)));
  }
  for (const value of ticks(...x, Math.max(2, width / 90))) {
    made.append(drawn("text", { x: toX(value), y: bottom + 18, "text-anchor": "middle" }, labels.x(value)));
  }
  made.append(drawn("text", { x: width - EDGES.right, y: height - 4, "text-anchor": "end" }, labels.below));
  return { made, toX, toY };
}

function path(points) {
  return points.map(([x, y], number) => `${number ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

const ordered = (systems) => systems.map((_, number) => systems.length - 1 - number); // the first one on top

function plot(title, text, draw, className = "") {
  const holder = element("div", {});
  const caption = element("figcaption", {}, element("strong", { textContent: title }), element("span", { textContent: text }));
  const made = element("figure", { className }, caption, holder);
  made.draw = () => holder.replaceChildren(...[draw(holder.clientWidth)].flat());
  return made;
}

// Means of scores by the length of documents, in groups of as many documents each.
function byLength(system) {
  const words = index.documents.words;
  const scores = index.scores[chosen.metric][system];
  const sorted = words.map((_, number) => number).sort((a, b) => words[a] - words[b]);
  const count = Math.min(8, Math.max(1, Math.floor(sorted.length / 10)));
  return Array.from({ length: count }, (_, group) => {
    const start = Math.round((group * sorted.length) / count);
    const members = sorted.slice(start, Math.round(((group + 1) * sorted.length) / count));
    const values = members.map((number) => scores[number]);
    const middle = mean(values);
    const variance = total(values.map((value) => (value - middle) ** 2)) / Math.max(values.length - 1, 1);
    const error = 1.96 * Math.sqrt(variance / values.length);
    return { x: mean(members.map((number) => words[number])), y: middle, error };
  });
}

function drawLengths(width) {
  const series = index.systems.map((_, system) => byLength(system));
  const points = series.flat();
  const x = [Math.min(...points.map((point) => point.x)), Math.max(...points.map((point) => point.x))];
  const y = [Math.min(...points.map((point) => point.y - point.error)), Math.max(...points.map((point) => point.y + point.error))];
  const told = series.map((each, system) => `${index.systems[system].name} from ${fixed(each[0].y)} to ${fixed(each.at(-1).y)}`);
  const labels = { name: `${chosen.metric} from the shortest to the longest documents: ${joined(told)}`, x: whole, y: (value) => String(+value.toFixed(2)), below: "words of the document" };
  const { made, toX, toY } = frame(width, HEIGHT, widened(x), widened(y), labels);
  for (const system of ordered(series)) {
    const aside = 4 * (system - (series.length - 1) / 2); // so that intervals do not hide each other
    for (const { x, y, error } of series[system]) {
      const cx = toX(x) + aside;
      made.append(drawn("line", { class: `s${system} whisker`, x1: cx, x2: cx, y1: toY(y - error), y2: toY(y + error) }));
      made.append(drawn("circle", { class: `s${system} dot`, cx, cy: toY(y), r: 3 }));
    }
    const points = series[system].map(({ x, y }) => [toX(x) + aside, toY(y)]);
    made.append(drawn("path", { class: `s${system} line`, d: path(points) }));
  }
  return made;
}

function widened([low, high]) {
  const pad = (high - low) * 0.06 || Math.abs(low) * 0.1 || 1;
  return [low - pad, high + pad];
}

const classOf = (series) => (series ? `s${series - 1}` : "reference"); // the reference comes first
const nameOf = (series) => (series ? index.systems[series - 1].name : "reference");

function runningShares(counts) {
  const all = total(counts) || 1;
  let sum = 0;
  return [0, ...counts.map((count) => (sum += count) / all)];
}

function drawShares(width, histograms, labels, guide) {
  const { made, toX, toY } = frame(width, HEIGHT, [0, 1], [0, 1], labels);
  const [from, to] = guide;
  made.append(drawn("line", { class: "guide", x1: toX(from[0]), y1: toY(from[1]), x2: toX(to[0]), y2: toY(to[1]) }));
  for (const series of ordered(histograms)) {
    const shares = runningShares(histograms[series]);
    const points = shares.map((share, bin) => [toX(bin / (shares.length - 1)), toY(share)]);
    made.append(drawn("path", { class: `${classOf(series)} line`, d: path(points) }));
  }
  return made;
}

function drawUsed(width) {
  const told = index.used.map((counts, series) => `${nameOf(series)} ${percent(runningShares(counts)[counts.length / 4])}`);
  const labels = { name: `Share of what is used that stands in the first quarter of the document: ${joined(told)}`, x: percent, y: percent, below: "read of the document" };
  return drawShares(width, index.used, labels, [[0, 0], [1, 1]]);
}

function drawSupport(width) {
  const told = index.sentences.map((counts, series) => {
    const below = runningShares(counts)[Math.round(index.supported * counts.length)];
    return `${nameOf(series)} ${percent(below)}`;
  });
  const labels = { name: `Share of unsupported sentences: ${joined(told)}`, x: percent, y: percent, below: "held by the document, at most" };
  return drawShares(width, index.sentences, labels, [[index.supported, 0], [index.supported, 1]]);
}

function drawWords(width) {
  const wanted = index.documents.reference_words;
  const ascending = (values) => [...values].sort((a, b) => a - b);
  const right = Math.max(quantile(ascending(wanted), 0.99), 1);
  const top = Math.max(quantile(ascending([...wanted, ...index.words.flat()]), 0.98), 1);
  const columns = Math.max(1, Math.min(Math.floor((width + 32) / 240), index.systems.length));
  const each = (width - 32 * (columns - 1)) / columns;
  const step = Math.max(1, Math.ceil(size() / MOST_POINTS));
  const panels = index.systems.map((system, number) => {
    const ratios = ascending(index.words[number].map((words, i) => words / Math.max(wanted[i], 1)));
    const text = `${system.name}: ${fixed(quantile(ratios, 0.5))} times the reference (median)`;
    const labels = { name: `Words of the reference and of the summary, ${text}`, x: whole, y: whole, below: "words of the reference" };
    const { made, toX, toY } = frame(each, Math.min(each, HEIGHT), [0, right], [0, top], labels);
    const corner = Math.min(right, top);
    made.append(drawn("line", { class: "guide", x1: toX(0), y1: toY(0), x2: toX(corner), y2: toY(corner) }));
    const cloud = drawn("g", { class: "cloud" });
    for (let i = 0; i < size(); i += step) {
      const [cx, cy] = [toX(Math.min(wanted[i], right)), toY(Math.min(index.words[number][i], top))];
      cloud.append(drawn("circle", { class: `s${number} dot`, cx, cy, r: 2.25 }));
    }
    made.append(cloud);
    return element("div", {}, element("p", { textContent: text }), made);
  });
  const holder = element("div", { className: "panels" }, ...panels);
  holder.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  return holder;
}

let plots = [];

function makePlots() {
  const threshold = percent(index.supported);
  plots = [
    plot("Score by length", "Means over groups of documents of about the same length, with 95 % intervals.", drawLengths),
    plot("Where it comes from", "Share of what a summary rests on that a reader of so much of the document has met; the dotted line is an even use.", drawUsed),
    plot("How much the document holds", `Share of sentences of which the document holds at most so much; those below ${threshold}, left of the dotted line, count as unsupported.`, drawSupport),
    plot("Length against the reference", "Each dot is a document, at the edge one that lies beyond; on the dotted line both are as long.", drawWords, "full"),
  ];
  at("plots").replaceChildren(...plots);
  const names = [...index.systems.keys()].map((number) => number + 1).concat(0);
  const items = names.map((series) => {
    const sample = drawn("svg", { viewBox: "0 0 36 16", "aria-hidden": "true" });
    sample.append(drawn("path", { class: `${classOf(series)} line`, d: "M0 8L36 8" }));
    return element("li", {}, sample, nameOf(series));
  });
  at("legend").replaceChildren(...items);
}

const drawPlots = () => plots.forEach((each) => each.draw());

// The table

// What the documents may be ordered by: name, values of all documents.
function keys() {
  const scores = index.scores[chosen.metric];
  const found = {};
  index.systems.forEach((system, number) => {
    found[`score ${number}`] = [`${chosen.metric} of ${system.name}`, scores[number]];
  });
  index.systems.slice(1).forEach((system, number) => {
    const values = scores[0].map((value, i) => value - scores[number + 1][i]);
    found[`difference ${number + 1}`] = [`${index.systems[0].name} less ${system.name}`, values];
  });
  index.systems.forEach((system, number) => {
    found[`unsupported ${number}`] = [`unsupported sentences of ${system.name}`, index.unsupported[number]];
  });
  found.words = ["words of the document", index.documents.words];
  found.place = ["place in the file", index.documents.id.map((_, number) => number)];
  return found;
}

function arrange() {
  const [, values] = keys()[chosen.key];
  const sign = chosen.descending ? -1 : 1;
  const numbers = matching ? [...matching] : index.documents.id.map((_, number) => number);
  order = numbers.sort((a, b) => sign * (values[a] - values[b]) || a - b);
}

function showOrder() {
  const options = Object.entries(keys()).map(([value, [text]]) => new Option(text, value, false, value === chosen.key));
  at("order").replaceChildren(...options);
  at("direction").textContent = chosen.descending ? "Highest first" : "Lowest first";
  at("direction").setAttribute("aria-label", `${at("direction").textContent}; turn around`);
}

function columnsOfTable() {
  const scores = index.systems.map((system, number) => [`score ${number}`, system.name]);
  const difference = index.systems.length === 2 ? [["difference 1", "Difference"]] : [];
  return [...scores, ...difference, ["words", "Words"]];
}

function showHead() {
  const cells = columnsOfTable().map(([key, name]) => {
    const isSorted = key === chosen.key;
    const arrow = isSorted ? (chosen.descending ? " \u2193" : " \u2191") : "";
    const button = element("button", { type: "button", textContent: name + arrow });
    button.addEventListener("click", () => orderBy(key, isSorted ? !chosen.descending : false));
    const cell = element("th", { scope: "col" }, button);
    if (isSorted) cell.setAttribute("aria-sort", chosen.descending ? "descending" : "ascending");
    return cell;
  });
  const row = element("tr", {}, element("th", { scope: "col", textContent: `Document, ${chosen.metric} of` }), ...cells);
  row.setAttribute("aria-rowindex", 1);
  at("table").tHead.replaceChildren(row);
}

function orderBy(key, descending) {
  const focused = [...at("table").tHead.querySelectorAll("button")].indexOf(document.activeElement);
  Object.assign(chosen, { key, descending });
  showTable();
  if (focused >= 0) at("table").tHead.querySelectorAll("button")[focused].focus();
}

function showTable() {
  arrange();
  showOrder();
  showHead();
  const count = order.length;
  at("found").textContent = matching ? `${whole(count)} of ${whole(size())} documents` : `${whole(count)} documents`;
  at("table").setAttribute("aria-rowcount", count + 1);
  at("rows").scrollTop = 0;
  showRows();
}

function tableRow(place) {
  const number = order[place];
  const values = keysOfTable.map(([key, list]) => (key === "words" ? whole(list[number]) : key.startsWith("difference") ? signed(list[number]) : fixed(list[number])));
  const link = element("a", { href: `#document=${number + 1}`, textContent: index.documents.id[number] });
  link.dataset.place = place;
  const opening = element("span", { textContent: index.documents.opening[number], dir: "auto" });
  const row = element("tr", { className: "row" }, element("td", { className: "document" }, link, opening));
  row.append(...values.map((textContent) => element("td", { textContent })));
  row.setAttribute("aria-rowindex", place + 2);
  return row;
}

function spacer(rows) {
  const made = element("tr", { ariaHidden: "true" }, element("td", { colSpan: columnsOfTable().length + 1 }));
  made.style.height = `${rows * ROW_HEIGHT}px`;
  return made;
}

let keysOfTable = [];

// Only the rows in view exist, between two empty ones as high as the others.
function showRows() {
  const known = keys();
  keysOfTable = columnsOfTable().map(([key]) => [key, known[key][1]]);
  const view = at("rows");
  const start = Math.max(0, Math.floor(view.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const stop = Math.min(order.length, Math.ceil((view.scrollTop + view.clientHeight) / ROW_HEIGHT) + SPARE_ROWS);
  const focused = document.activeElement?.dataset?.place;
  const rows = [];
  if (start) rows.push(spacer(start));
  for (let place = start; place < stop; place++) rows.push(tableRow(place));
  if (stop < order.length) rows.push(spacer(order.length - stop));
  at("table").tBodies[0].replaceChildren(...rows);
  if (focused !== undefined) at("table").querySelector(`[data-place="${focused}"]`)?.focus({ preventScroll: true });
}

function focusRow(place) {
  const wanted = Math.max(0, Math.min(place, order.length - 1));
  const view = at("rows");
  const head = at("table").tHead.offsetHeight;
  const top = wanted * ROW_HEIGHT;
  if (top < view.scrollTop) view.scrollTop = top;
  if (top + ROW_HEIGHT + head > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW_HEIGHT + head - view.clientHeight;
  showRows();
  at("table").querySelector(`[data-place="${wanted}"]`)?.focus({ preventScroll: true });
}

function onRowKey(event) {
  const place = Number(event.target.dataset.place ?? NaN);
  const page = Math.floor(at("rows").clientHeight / ROW_HEIGHT) - 1;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (Number.isNaN(place) || !(event.key in steps)) return;
  event.preventDefault();
  focusRow(place + steps[event.key]);
}

// Search

let searching = 0; // changes with every search, so that an older one ends

async function search() {
  const mine = ++searching;
  const wanted = at("search").value.trim().toLowerCase();
  if (!wanted) {
    matching = null;
    return showTable();
  }
  matching = new Set();
  for (let chunk = 0; chunk < index.chunks.length; chunk++) {
    const start = index.chunks[chunk];
    const documents = await (chunks.get(chunk) ?? unpack(`chunk-${chunk}`));
    if (mine !== searching) return;
    documents.forEach((each, i) => {
      const texts = [...each.references, ...each.summaries].flatMap((text) => text.pieces);
      const all = [index.documents.id[start + i], each.query ?? "", each.source.join(""), texts.join("\n")];
      if (all.some((text) => text.toLowerCase().includes(wanted))) matching.add(start + i);
    });
    at("found").textContent = `${whole(matching.size)} found, ${percent((chunk + 1) / index.chunks.length)} searched`;
  }
  showTable();
}

// One document

let shown = null; // number of the document
let place = null; // the sentence of a summary that is chosen

function scoresOf(system, number) {
  const count = index.unsupported[system][number];
  const parts = [`${chosen.metric} ${fixed(index.scores[chosen.metric][system][number])}`, `${whole(index.words[system][number])} words`];
  if (count) parts.push(`${count} unsupported ${count > 1 ? "sentences" : "sentence"}`);
  return parts.join(" \u00b7 ");
}

const held = (support) => total(support.map(([, score]) => score));

function sentence(piece, support, first) {
  const [, space, text] = piece.match(/^(\s*)([^]*)$/);
  const made = element("span", { className: "sentence", textContent: text, tabIndex: first ? 0 : -1 });
  made.setAttribute("role", "button");
  made.setAttribute("aria-pressed", "false");
  if (held(support) < index.supported) {
    made.classList.add("unsupported");
    made.append(element("span", { className: "hidden", textContent: " (unsupported)" }));
  }
  made.support = support;
  return [space, made];
}

function card(title, facts, text, className) {
  const sentences = text.pieces.flatMap((piece, i) => sentence(piece, text.support[i], i === 0));
  const body = element("div", { className: "text", dir: "auto" }, ...(sentences.length ? sentences : ["(empty)"]));
  return element("article", { className }, element("h3", { textContent: title }), element("p", { className: "facts", textContent: facts }), body);
}

async function open(number) {
  const found = await documentOf(number);
  shown = number;
  place = null;
  const position = order.indexOf(number);
  at("name").textContent = index.documents.id[number];
  at("query").hidden = !found.query;
  at("query").textContent = found.query ?? "";
  at("place").textContent = position < 0 ? "" : `${whole(position + 1)} of ${whole(order.length)}`;
  at("previous").disabled = position <= 0;
  at("next").disabled = position < 0 || position === order.length - 1;
  const references = found.references.map((text, i) => {
    const name = found.references.length > 1 ? `Reference ${i + 1}` : "Reference";
    const facts = i ? "" : `${whole(index.documents.reference_words[number])} words`;
    return card(name, facts, text, "");
  });
  const summaries = found.summaries.map((text, i) => card(index.systems[i].name, scoresOf(i, number), text, i ? "" : "first"));
  at("summaries").replaceChildren(...references, ...summaries);
  at("source").replaceChildren(...found.source.map((piece) => element("span", { textContent: piece })));
  at("source").scrollTop = 0;
  at("support").textContent = `${whole(index.documents.words[number])} words`;
  at("overview").hidden = true;
  at("reader").hidden = false;
  scrollTo(0, 0);
  at("name").focus({ preventScroll: true });
}

function clearMarks() {
  for (const mark of at("source").querySelectorAll("mark")) {
    mark.querySelector("sup").remove();
    mark.replaceWith(element("span", { textContent: mark.textContent }));
  }
}

function choose(chosenSentence) {
  clearMarks();
  const again = place === chosenSentence;
  place?.setAttribute("aria-pressed", "false");
  place = again ? null : chosenSentence;
  if (!place) {
    at("support").textContent = `${whole(index.documents.words[shown])} words`;
    return;
  }
  place.setAttribute("aria-pressed", "true");
  const pieces = [...at("source").children];
  const support = place.support;
  const marks = support.map(([i, score]) => {
    const [, space, text] = pieces[i].textContent.match(/^(\s*)([^]*)$/);
    const mark = element("mark", {}, text, element("sup", { textContent: percent(score) }));
    pieces[i].replaceChildren(space, mark);
    return mark;
  });
  at("support").textContent = told(support);
  if (marks.length) {
    const view = at("source");
    const top = marks[0].getBoundingClientRect().top - view.getBoundingClientRect().top;
    view.scrollTop += top - view.clientHeight / 3;
  }
}

function told(support) {
  if (!support.length) return "Shares no words with the document: unsupported.";
  const count = support.length === 1 ? "one sentence" : `${support.length} sentences`;
  if (held(support) >= index.supported) return `Rests on ${count}, which hold${support.length === 1 ? "s" : ""} ${percent(held(support))} of it.`;
  return `Unsupported: the nearest ${count} hold${support.length === 1 ? "s" : ""} ${percent(held(support))} of it.`;
}

function onSentenceKey(event) {
  const current = event.target;
  if (!current.classList.contains("sentence")) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(current);
  }
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  if (!(event.key in steps)) return;
  const all = [...current.parentElement.querySelectorAll(".sentence")];
  const next = all[all.indexOf(current) + steps[event.key]];
  if (!next) return;
  event.preventDefault();
  current.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// The address says what is shown: nothing, or #document=7.

function close() {
  if (shown === null) return;
  const position = order.indexOf(shown);
  shown = null;
  at("reader").hidden = true;
  at("overview").hidden = false;
  drawPlots();
  at("documents").scrollIntoView();
  focusRow(position);
}

function follow() {
  const number = Number(location.hash.match(/^#document=(\d+)$/)?.[1] ?? NaN) - 1;
  if (number >= 0 && number < size()) return open(number);
  close();
}

function step(by) {
  location.hash = `#document=${order[order.indexOf(shown) + by] + 1}`;
}

function chooseMetric(name) {
  chosen.metric = name;
  showBoard();
  drawPlots();
  showTable();
}

function listen() {
  at("metric").addEventListener("change", () => chooseMetric(at("metric").value));
  at("order").addEventListener("change", () => orderBy(at("order").value, chosen.descending));
  at("direction").addEventListener("click", () => orderBy(chosen.key, !chosen.descending));
  let waiting;
  at("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 250);
  });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("rows").addEventListener("scroll", showRows, { passive: true });
  at("table").addEventListener("keydown", onRowKey);
  at("table").tBodies[0].addEventListener("click", (event) => {
    if (!event.target.closest("a")) event.target.closest("tr")?.querySelector("a")?.click();
  });
  at("summaries").addEventListener("click", (event) => {
    const clicked = event.target.closest(".sentence");
    if (clicked) choose(clicked);
  });
  at("summaries").addEventListener("keydown", onSentenceKey);
  at("previous").addEventListener("click", () => step(-1));
  at("next").addEventListener("click", () => step(1));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown !== null) location.hash = "#documents";
  });
  addEventListener("hashchange", follow);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width && shown === null) drawPlots();
    width = innerWidth;
  });
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser is too old; Chrome 80, Firefox 113 and Safari 16.4 can");
  index = await unpack("index");
  chosen.metric = index.main_column;
  chosen.key = "score 0";
  const count = index.systems.length;
  at("facts").textContent = `${count} ${count > 1 ? "systems" : "system"}, ${whole(size())} documents, longsum_jax ${index.version}`;
  at("metric").append(...index.columns.map((name) => new Option(name, name, false, name === chosen.metric)));
  at("reader-note").textContent =
    "Choose a sentence to see which sentences of the document it rests on. Dotted ones are unsupported: the best " +
    `${index.max_sources} sentences hold less than ${percent(index.supported)} of its words and pairs of words, where rare ones count more.`;
  at("overview").hidden = false;
  makePlots();
  showScores();
  chooseMetric(chosen.metric);
  listen();
  await follow();
}

start().catch((error) => {
  at("problem").textContent = `The report cannot be shown: ${error.message}.`;
  at("problem").hidden = false;
});
