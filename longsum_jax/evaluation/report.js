// What all parts of the page share.

const KEPT_CHUNKS = 6;
const SVG = "http://www.w3.org/2000/svg";

const at = (id) => document.getElementById(id);
let index; // all but the documents, see report.py
const chosen = { metric: "", key: "score 0", descending: false };
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
const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
const percent = (share) => `${Math.round(100 * share)} %`;
const exactPercent = (share) => `${(100 * share).toFixed(1)} %`;
const fixed = (value) => value.toFixed(2).replace("-", "\u2212");
const signed = (value) => (value < 0 ? "" : "+") + fixed(value);
const range = ([low, high]) => `${fixed(low)} to ${fixed(high)}`;
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const mean = (values) => total(values) / values.length;

// Wordings of support, which is measured by shared words or by vectors of sentences.
const WORDINGS = {
  words: {
    title: "Support by the document",
    axis: "words that the document contains, at most",
    share: "Share of sentences of which the document contains at most this share of the words",
    note: () =>
      `no ${index.max_sources} sentences of the document contain ${percent(index.supported)} of ` +
      "the words and word pairs of such a sentence, weighted by rarity.",
    nothing: "it shares no words with the document.",
    held: (count, share) => `which ${count === 1 ? "contains" : "contain"} ${share} of its words`,
    less: () => `the document contains less than ${percent(index.supported)} of its words.`,
  },
  vectors: {
    title: "Similarity to the document",
    axis: "similarity to the document, at most",
    share: "Share of sentences with at most this similarity to the document",
    note: () =>
      `no ${index.max_sources} sentences of the document have a similarity of ` +
      `${percent(index.supported)}, which 3 in 100 sentences about other documents reach.`,
    nothing: "the document contains nothing similar.",
    held: (count, share) => `${count === 1 ? "" : "together "}${share} similar to it`,
    less: () => `less than ${percent(index.supported)} similar to the document.`,
  },
};
const wording = () => WORDINGS[index.alignment.by];

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
