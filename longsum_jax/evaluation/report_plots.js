// Plots, drawn anew where the width of the page or the metric changes.

const MOST_POINTS = 600; // of a cloud
const HEIGHT = 240;
const EDGES = { top: 8, right: 10, bottom: 40, left: 40 };

function frame(width, height, x, y, labels) {
  const [left, bottom] = [EDGES.left, height - EDGES.bottom];
  const made = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": labels.name,
  });
  const toX = scale(x, [left, width - EDGES.right]);
  const toY = scale(y, [bottom, EDGES.top]);
  for (const value of ticks(...y, 4)) {
    made.append(
      drawn("line", {
        class: "axis",
        x1: left,
        x2: width - EDGES.right,
        y1: toY(value),
        y2: toY(value),
      }),
    );
    made.append(
      drawn("text", { x: left - 6, y: toY(value) + 4, "text-anchor": "end" }, labels.y(value)),
    );
  }
  for (const value of ticks(...x, Math.max(2, width / 90))) {
    made.append(
      drawn("text", { x: toX(value), y: bottom + 18, "text-anchor": "middle" }, labels.x(value)),
    );
  }
  made.append(
    drawn("text", { x: width - EDGES.right, y: height - 4, "text-anchor": "end" }, labels.below),
  );
  return { made, toX, toY };
}

function path(points) {
  return points
    .map(([x, y], number) => `${number ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`)
    .join("");
}

// The numbers of series from the last to the first, which is drawn on top.
const ordered = (series) => series.map((_, number) => series.length - 1 - number);

function plot(title, text, draw, className = "") {
  const holder = element("div", {});
  const caption = element(
    "figcaption",
    {},
    element("strong", { textContent: title }),
    element("span", { textContent: text }),
  );
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
    const variance =
      total(values.map((value) => (value - middle) ** 2)) / Math.max(values.length - 1, 1);
    const error = 1.96 * Math.sqrt(variance / values.length);
    return { x: mean(members.map((number) => words[number])), y: middle, error };
  });
}

function drawLengths(width) {
  const series = index.systems.map((_, system) => byLength(system));
  const points = series.flat();
  const x = [
    Math.min(...points.map((point) => point.x)),
    Math.max(...points.map((point) => point.x)),
  ];
  const y = [
    Math.min(...points.map((point) => point.y - point.error)),
    Math.max(...points.map((point) => point.y + point.error)),
  ];
  const told = series.map(
    (each, system) =>
      `${index.systems[system].name} from ${fixed(each[0].y)} to ${fixed(each.at(-1).y)}`,
  );
  const labels = {
    name: `${chosen.metric} from the shortest to the longest documents: ${joined(told)}`,
    x: whole,
    y: (value) => String(+value.toFixed(2)),
    below: "words of the document",
  };
  const { made, toX, toY } = frame(width, HEIGHT, widened(x), widened(y), labels);
  for (const system of ordered(series)) {
    const aside = 4 * (system - (series.length - 1) / 2); // intervals must not hide each other
    for (const { x, y, error } of series[system]) {
      const cx = toX(x) + aside;
      made.append(
        drawn("line", {
          class: `s${system} whisker`,
          x1: cx,
          x2: cx,
          y1: toY(y - error),
          y2: toY(y + error),
        }),
      );
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
// The numbers of all series; without references there is no first one.
const allSeries = () => [...index.used.keys()].slice(index.has_references ? 0 : 1);
const nameOf = (series) => (series ? index.systems[series - 1].name : "reference");

function runningShares(counts) {
  const all = total(counts) || 1;
  let sum = 0;
  return [0, ...counts.map((count) => (sum += count) / all)];
}

function drawShares(width, histograms, labels, guide) {
  const { made, toX, toY } = frame(width, HEIGHT, [0, 1], [0, 1], labels);
  const [from, to] = guide;
  made.append(
    drawn("line", {
      class: "guide",
      x1: toX(from[0]),
      y1: toY(from[1]),
      x2: toX(to[0]),
      y2: toY(to[1]),
    }),
  );
  for (const series of allSeries().reverse()) {
    const shares = runningShares(histograms[series]);
    const points = shares.map((share, bin) => [toX(bin / (shares.length - 1)), toY(share)]);
    made.append(drawn("path", { class: `${classOf(series)} line`, d: path(points) }));
  }
  return made;
}

function drawUsed(width) {
  const told = allSeries().map((series) => {
    const counts = index.used[series];
    return `${nameOf(series)} ${percent(runningShares(counts)[counts.length / 4])}`;
  });
  const labels = {
    name: `Share of the sources in the first quarter of the document: ${joined(told)}`,
    x: percent,
    y: percent,
    below: "part of the document, from its beginning",
  };
  return drawShares(width, index.used, labels, [
    [0, 0],
    [1, 1],
  ]);
}

function drawSupport(width) {
  const told = allSeries().map(
    (series) => `${nameOf(series)} ${percent(index.unsupported_shares[series])}`,
  );
  const labels = {
    name: `Share of unsupported sentences: ${joined(told)}`,
    x: percent,
    y: percent,
    below: wording().axis,
  };
  return drawShares(width, index.sentences, labels, [
    [index.supported, 0],
    [index.supported, 1],
  ]);
}

function drawWords(width) {
  const wanted = index.documents.reference_words;
  const ascending = (values) => [...values].sort((a, b) => a - b);
  const right = Math.max(quantile(ascending(wanted), 0.99), 1);
  const top = Math.max(quantile(ascending([...wanted, ...index.words.flat()]), 0.98), 1);
  const columns = Math.max(1, Math.min(Math.floor((width + 32) / 240), index.systems.length));
  const each = Math.min((width - 32 * (columns - 1)) / columns, 420);
  const step = Math.max(1, Math.ceil(size() / MOST_POINTS));
  const panels = index.systems.map((system, number) => {
    const ratios = ascending(index.words[number].map((words, i) => words / Math.max(wanted[i], 1)));
    const text = `${system.name}: ${fixed(quantile(ratios, 0.5))} times the reference (median)`;
    const labels = {
      name: `Words of the reference and of the summary, ${text}`,
      x: whole,
      y: whole,
      below: "words of the reference",
    };
    const { made, toX, toY } = frame(each, Math.min(each, HEIGHT), [0, right], [0, top], labels);
    const corner = Math.min(right, top);
    made.append(
      drawn("line", { class: "guide", x1: toX(0), y1: toY(0), x2: toX(corner), y2: toY(corner) }),
    );
    const cloud = drawn("g", { class: "cloud" });
    for (let i = 0; i < size(); i += step) {
      const [cx, cy] = [
        toX(Math.min(wanted[i], right)),
        toY(Math.min(index.words[number][i], top)),
      ];
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
    plot(
      "Score by length",
      "Means over groups of documents of about the same length, with 95 % intervals.",
      drawLengths,
    ),
    plot(
      "Positions of the sources",
      "Share of a summary's sources up to each position in the document; on the dotted line, all " +
        "parts are used equally.",
      drawUsed,
    ),
    plot(
      wording().title,
      `${wording().share}; those below ${threshold}, left of the dotted line, count as unsupported.`,
      drawSupport,
    ),
  ];
  if (index.has_references)
    plots.push(
      plot(
        "Length compared with the reference",
        "Each dot is a document; dots at the edge are beyond it. On the dotted line, summary and " +
          "reference are equally long.",
        drawWords,
        "full",
      ),
    );
  at("plots").replaceChildren(...plots);
  const referenceLast = allSeries().sort((a, b) => !a - !b || a - b);
  const items = referenceLast.map((series) => {
    const sample = drawn("svg", { viewBox: "0 0 36 16", "aria-hidden": "true" });
    sample.append(drawn("path", { class: `${classOf(series)} line`, d: "M0 8L36 8" }));
    return element("li", {}, sample, nameOf(series));
  });
  at("legend").replaceChildren(...items);
}

const drawPlots = () => plots.forEach((each) => each.draw());
