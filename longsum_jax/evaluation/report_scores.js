// What the page says first, and the table of all metrics.

const SIGNIFICANT = 0.05;
const TESTS = {
  randomization: "paired approximate randomization",
  bootstrap: "the paired bootstrap",
};

const isDifferent = (found) => found.p_value < SIGNIFICANT;
const level = () => Number((100 * index.sampling.level).toPrecision(6)); // %
const chance = (p) => (p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`);

function joined(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

// One sentence, and the reason for it.
function verdict() {
  const metric = chosen.metric;
  const [first, ...others] = index.systems;
  if (!others.length) {
    const interval = first.intervals[metric];
    const reason = interval ? `${level()} % interval: ${range(interval)}.` : "";
    return [`${first.name} has a ${metric} of ${fixed(first.values[metric])}.`, reason];
  }
  if (others.length > 1) return verdictOfSeveral();
  return verdictOfTwo(first, others[0], others[0].against[metric]);
}

function verdictOfSeveral() {
  const metric = chosen.metric;
  const [first, ...others] = index.systems;
  const values = index.systems.map((system) => system.values[metric]);
  const highest = Math.max(...values);
  const best = index.systems[values.indexOf(highest)];
  const tested = others.filter((system) => metric in system.against);
  const different = tested.filter((system) => isDifferent(system.against[metric]));
  const alike = tested.filter((system) => !different.includes(system));
  const named = (systems) =>
    systems.length === others.length && others.length > 2
      ? "all others"
      : joined(systems.map((system) => system.name));
  const reasons = [];
  if (different.length)
    reasons.push(`${first.name} differs significantly from ${named(different)}.`);
  if (alike.length)
    reasons.push(`${first.name} does not differ significantly from ${named(alike)}.`);
  return [`${best.name} has the highest ${metric}, ${fixed(highest)}.`, reasons.join(" ")];
}

function verdictOfTwo(first, second, found) {
  const metric = chosen.metric;
  const difference = first.values[metric] - second.values[metric];
  const [better, worse] = difference < 0 ? [second, first] : [first, second];
  const by = fixed(Math.abs(difference));
  const higher = `${better.name} scores ${by} higher than ${worse.name} in ${metric}.`;
  if (!found) return [higher, "This metric has no test."];
  if (isDifferent(found)) {
    const ends = difference < 0 ? [-found.high, -found.low] : [found.low, found.high];
    const between = `${fixed(ends[0])} and ${fixed(ends[1])}`;
    const reason = `The difference is significant (${chance(found.p_value)})`;
    return [higher, `${reason} and probably lies between ${between}.`];
  }
  return [
    `${first.name} and ${second.name} do not differ significantly in ${metric}.`,
    `The values differ by ${by}, which may be chance (${chance(found.p_value)}). ` +
      "With this number of documents, differences are detectable from about " +
      `${fixed(found.smallest)} on.`,
  ];
}

function showBoard() {
  const metric = chosen.metric;
  [at("verdict").textContent, at("reason").textContent] = verdict();
  const ends = index.systems.flatMap(
    (system) => system.intervals[metric] ?? [system.values[metric]],
  );
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const pad = (high - low || 1) * (index.systems.length > 1 ? 0.06 : 1);
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
  const { rounds, test } = index.sampling;
  const notes = [`Bars are ${level()} % intervals over documents.`];
  const adjusted = index.systems.length > 2 ? ", adjusted for the number of systems (Holm)" : "";
  if (index.systems.length > 1)
    notes.push(`Differences are tested by ${TESTS[test]}, ${whole(rounds)} rounds${adjusted}.`);
  at("board-note").textContent = notes.join(" ");
}

function difference(system, number) {
  if (number === 0) return index.systems.length > 1 ? "the others are compared with this one" : "";
  const found = system.against[chosen.metric];
  if (!found) return "not tested";
  const interval = range([-found.high, -found.low]);
  const judged = isDifferent(found) ? "significant" : "may be chance";
  return `${signed(-found.difference)} [${interval}], ${chance(found.p_value)}, ${judged}`;
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
    made.append(drawn("line", { class: `s${number} whisker`, x1, x2, y1: "50%", y2: "50%" }));
  }
  made.append(
    drawn("circle", { class: `s${number} dot`, cx: `${place(value)}%`, cy: "50%", r: 4.5 }),
  );
  return made;
}

function showScores() {
  const head = element("tr", {}, element("th", { textContent: "Metric", scope: "col" }));
  for (const system of index.systems)
    head.append(element("th", { textContent: system.name, scope: "col" }));
  const rows = index.columns.map((column) => {
    const cells = index.systems.map((system) => {
      const interval = system.intervals[column];
      const found = system.against[column];
      const star = found && isDifferent(found) ? "*" : "";
      const cell = element("td", {}, fixed(system.values[column]) + star);
      if (interval)
        cell.append(element("span", { className: "interval", textContent: range(interval) }));
      return cell;
    });
    return element("tr", {}, element("th", { textContent: column, scope: "row" }), ...cells);
  });
  const missing = index.unsupported.map((counts, number) => {
    const sentences = total(index.sentences[number + 1]);
    return element("td", { textContent: sentences ? exactPercent(total(counts) / sentences) : "" });
  });
  const name = element("th", { textContent: "unsupported sentences", scope: "row" });
  rows.push(element("tr", {}, name, ...missing));
  at("scores").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  const notes = [`Unsupported: ${wording().less()}`];
  if (index.systems.length > 1)
    notes.push(`* differs from ${index.systems[0].name} at p < ${SIGNIFICANT}.`);
  for (const system of index.systems) {
    if (system.empty)
      notes.push(`${system.name}: ${system.empty} empty summaries, included in the scores.`);
  }
  at("scores-note").textContent = [...notes, ...index.signatures].join(" ");
}

// The rows of papers that share a metric with the systems, each table below their scores.
function showPublished() {
  const isScored = (metric) => index.columns.includes(metric);
  const blocks = index.published.filter((block) => block.metrics.some(isScored));
  at("published-section").hidden = !blocks.length;
  at("published").replaceChildren(...blocks.flatMap(publishedTable));
}

function publishedTable(block) {
  const title = `${block.paper}, table ${block.table}: ${block.dataset}`;
  const heads = ["System", ...block.metrics].map((text) =>
    element("th", { textContent: text, scope: "col" }),
  );
  const systems = index.systems.map((system) => [system.name, system.values]);
  const rows = [...systems, ...Object.entries(block.systems)].map(([name, values]) => {
    const cells = block.metrics.map((metric) =>
      element("td", { textContent: metric in values ? fixed(values[metric]) : "" }),
    );
    return element("tr", {}, element("th", { textContent: name, scope: "row" }), ...cells);
  });
  const table = element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows),
  );
  const label = { role: "group", "aria-label": title, tabindex: "0" };
  const wide = element("div", { className: "wide" }, table);
  for (const [name, value] of Object.entries(label)) wide.setAttribute(name, value);
  const note = element("p", { className: "note", textContent: block.notes.join(". ") });
  return [element("h3", { textContent: title }), wide, ...(block.notes.length ? [note] : [])];
}
