// The table of documents, the search in them, and one document beside its summaries.

const ROW_HEIGHT = 3.5; // in the size of letters, as in the style sheet
const SPARE_ROWS = 8; // outside of the view
const SEARCHED_SUMMARIES = 6; // smallest number of summaries with a search field

// What documents may be ordered by: name, values of all documents.
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
    found[`unsupported ${number}`] = [
      `unsupported sentences of ${system.name}`,
      index.unsupported[number],
    ];
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
  const options = Object.entries(keys()).map(
    ([value, [text]]) => new Option(text, value, false, value === chosen.key),
  );
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
    const arrow = isSorted ? (chosen.descending ? "\u00a0\u2193" : "\u00a0\u2191") : "";
    const button = element("button", { type: "button", textContent: name + arrow });
    button.addEventListener("click", () => orderBy(key, isSorted ? !chosen.descending : false));
    const cell = element("th", { scope: "col" }, button);
    if (isSorted) cell.setAttribute("aria-sort", chosen.descending ? "descending" : "ascending");
    return cell;
  });
  const row = element(
    "tr",
    {},
    element("th", { scope: "col", textContent: `Document, ${chosen.metric} of` }),
    ...cells,
  );
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
  at("found").textContent = matching
    ? `${whole(count)} of ${whole(size())} documents`
    : counted(count, "document");
  at("table").setAttribute("aria-rowcount", count + 1);
  at("rows").scrollTop = 0;
  showRows();
  filterSummaries();
}

const FORMATS = { score: fixed, difference: signed, words: whole };

function tableRow(place, columns) {
  const number = order[place];
  const values = columns.map(([key, list]) => FORMATS[key.split(" ")[0]](list[number]));
  const link = element("a", {
    href: `#document=${number + 1}`,
    textContent: index.documents.id[number],
  });
  link.dataset.place = place;
  const opening = element("span", {
    textContent: `${index.documents.opening[number]} \u2026`,
    dir: "auto",
  });
  const row = element(
    "tr",
    { className: "row" },
    element("td", { className: "document" }, link, opening),
  );
  row.append(...values.map((textContent) => element("td", { textContent })));
  row.setAttribute("aria-rowindex", place + 2);
  return row;
}

function rowHeight() {
  return ROW_HEIGHT * parseFloat(getComputedStyle(document.documentElement).fontSize);
}

function spacer(rows) {
  const made = element(
    "tr",
    { ariaHidden: "true" },
    element("td", { colSpan: columnsOfTable().length + 1 }),
  );
  made.style.height = `${rows * ROW_HEIGHT}rem`;
  return made;
}

// Only the rows in view exist, between two empty ones as high as the others.
function showRows() {
  const known = keys();
  const columns = columnsOfTable().map(([key]) => [key, known[key][1]]);
  const view = at("rows");
  const [first, last] = [view.scrollTop, view.scrollTop + view.clientHeight].map(
    (place) => place / rowHeight(),
  );
  const start = Math.max(0, Math.floor(first) - SPARE_ROWS);
  const stop = Math.min(order.length, Math.ceil(last) + SPARE_ROWS);
  const focused = document.activeElement?.dataset?.place;
  const rows = [];
  if (start) rows.push(spacer(start));
  for (let place = start; place < stop; place++) rows.push(tableRow(place, columns));
  if (stop < order.length) rows.push(spacer(order.length - stop));
  at("table").tBodies[0].replaceChildren(...rows);
  if (focused !== undefined)
    at("table").querySelector(`[data-place="${focused}"]`)?.focus({ preventScroll: true });
}

function focusRow(place) {
  const wanted = Math.max(0, Math.min(place, order.length - 1));
  const view = at("rows");
  const top = wanted * rowHeight();
  const bottom = top + rowHeight() + at("table").tHead.offsetHeight;
  if (top < view.scrollTop) view.scrollTop = top;
  if (bottom > view.scrollTop + view.clientHeight) view.scrollTop = bottom - view.clientHeight;
  showRows();
  at("table").querySelector(`[data-place="${wanted}"]`)?.focus({ preventScroll: true });
}

function onRowKey(event) {
  const place = Number(event.target.dataset.place ?? NaN);
  const page = Math.floor(at("rows").clientHeight / rowHeight()) - 1;
  const steps = {
    ArrowDown: 1,
    ArrowUp: -1,
    PageDown: page,
    PageUp: -page,
    Home: -Infinity,
    End: Infinity,
  };
  if (Number.isNaN(place) || !(event.key in steps)) return;
  event.preventDefault();
  focusRow(place + steps[event.key]);
}

// The list of summaries, which pages for readers show in place of the table.

async function listSummaries() {
  // The title states their number, and few summaries need no search.
  at("controls").hidden = size() < SEARCHED_SUMMARIES;
  at("found").hidden = at("controls").hidden;
  at("rows").hidden = true;
  at("order").parentElement.hidden = true;
  at("direction").hidden = true;
  at("list").hidden = false;
  for (let number = 0; number < size(); number++) {
    at("list").append(listItem(number, await documentOf(number)));
  }
  filterSummaries();
}

function listItem(number, { query, summaries }) {
  const link = element("a", {
    href: `#document=${number + 1}`,
    textContent: index.documents.id[number],
  });
  const source = counted(index.documents.words[number], "word");
  const facts = `${source}, summary of ${scoresOf(0, number)}`;
  const text = element("div", {
    className: "text",
    dir: "auto",
    textContent: summaries[0].pieces.join("").trim() || "(empty)",
  });
  const parts = [element("h3", {}, link), element("p", { className: "facts", textContent: facts })];
  if (query) parts.push(element("p", { className: "query", textContent: query }));
  return element("li", {}, ...parts, text);
}

// Hides the summaries of documents that a search did not match.
function filterSummaries() {
  [...at("list").children].forEach((item, number) => {
    item.hidden = matching !== null && !matching.has(number);
  });
}

// Search

let searching = 0; // changes with every search, so that an older one ends

async function search() {
  const mine = ++searching;
  const wanted = at("search").value.trim().toLowerCase();
  matching = wanted ? new Set() : null;
  for (let chunk = 0; wanted && chunk < index.chunks.length; chunk++) {
    const documents = await (chunks.get(chunk) ?? unpack(`chunk-${chunk}`));
    if (mine !== searching) return;
    documents.forEach((each, i) => {
      const number = index.chunks[chunk] + i;
      if (textsOf(number, each).some((text) => text.includes(wanted))) matching.add(number);
    });
    const tenths = Math.floor((10 * (chunk + 1)) / index.chunks.length);
    at("found").textContent = `${whole(matching.size)} found, ${10 * tenths} % searched`;
  }
  showTable();
}

// All that is searched of a document, in small letters.
function textsOf(number, found) {
  const written = [...found.references, ...found.summaries].map((text) => text.pieces);
  const texts = [found.source, ...written].map((pieces) => pieces.join(""));
  const all = [index.documents.id[number], found.query ?? "", ...texts];
  return all.map((text) => text.toLowerCase());
}

// One document

let shown = null; // number of the document

function scoresOf(system, number) {
  const count = index.unsupported[system][number];
  const score = `${chosen.metric} ${fixed(index.scores[chosen.metric][system][number])}`;
  const parts = [counted(index.words[system][number], "word")];
  if (!isForReaders()) parts.unshift(score);
  if (count) parts.push(counted(count, "unsupported sentence"));
  return parts.join(" \u00b7 ");
}

async function open(number) {
  const found = await documentOf(number);
  if (numberInAddress() !== number) return; // another one was asked for meanwhile
  shown = number;
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
  const summaries = found.summaries.map((text, i) =>
    card(
      isForReaders() ? "Summary" : index.systems[i].name,
      scoresOf(i, number),
      text,
      i ? "" : "first",
    ),
  );
  const words = `${whole(index.documents.words[number])} words`;
  showTexts([...references, ...summaries], found.source, words);
  at("overview").hidden = true;
  at("reader").hidden = false;
  scrollTo(0, 0);
  at("name").focus({ preventScroll: true });
}
