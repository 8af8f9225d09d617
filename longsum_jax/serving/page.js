// The page of the server: a form, and the viewer of the report. All texts of
// documents enter the page as text. A downloaded report is this page with data.

const PAGE = document.documentElement.cloneNode(true); // before any change
const UNITS = { words: "word", sentences: "sentence", percent: "percent" };
const PASTED = "Pasted text"; // name of the document
const SURROGATE = /[\ud800-\udfff]/;

let models = []; // entries of /v1/models, the first one for every request
let files = [];
let shownInput = ""; // input of the runs, see inputName
// Each run has settings and the answer of the server for each document.
let runs = [];
let request = null; // AbortController of the request that is running

// The input

function sizeOf(bytes) {
  const isSmall = bytes < 2 ** 20;
  const value = bytes / (isSmall ? 2 ** 10 : 2 ** 20);
  return `${value.toFixed(1)} ${isSmall ? "KB" : "MB"}`;
}

function chooseFiles(list) {
  files = [...list];
  const bytes = total(files.map((file) => file.size));
  at("file-names").textContent = files.map((file) => file.name).join(", ");
  at("file-size").textContent = sizeOf(bytes);
  at("choose-file").hidden = files.length > 0;
  at("chosen-file").hidden = files.length === 0;
  at("paste").hidden = files.length > 0;
  at("file").value = "";
  showProblem("");
  showCompare();
}

function inputName() {
  if (!files.length) return at("text").value;
  return JSON.stringify(
    files.map((file) => [file.name, file.size, file.lastModified]),
  );
}

function settings() {
  const number = at("length");
  if (number.validity.badInput)
    throw new Error("The length is not a number; enter one.");
  const value = Number(number.value);
  const length = number.value ? `${number.value} ${at("unit").value}` : null;
  const noun = UNITS[at("unit").value];
  const words =
    noun === "percent" ? `${value} % of the document` : counted(value, noun);
  const model = chosenModel();
  const missing = model?.is_extractive ? "in 150 words" : "of automatic length";
  const name = models.length > 1 ? ` by ${model.id}` : "";
  const title = `Summary${name} ${length ? `in ${words}` : missing}`;
  const query = at("question").value.trim();
  return { length, title, query, model: model?.id };
}

// Returns the entry of the model that is selected; undefined before it is known.
function chosenModel() {
  return models.find(({ id }) => id === at("model").value);
}

function body({ length, query, model }) {
  const options = { sources: true, document_text: true, stream: true };
  if (model) options.model = model;
  if (length) options.length = length;
  if (query) options.query = query;
  if (!files.length) {
    const content = JSON.stringify({ text: at("text").value, ...options });
    return { content, headers: { "Content-Type": "application/json" } };
  }
  const content = new FormData();
  for (const [name, value] of Object.entries(options))
    content.append(name, value);
  for (const file of files) content.append("file", file, file.name);
  return { content, headers: {} };
}

function checkInput() {
  if (!files.length && !at("text").value.trim())
    throw new Error("There is no document; choose a file or paste a text.");
  const bytes = total(files.map((file) => file.size));
  const limit = Number(document.body.dataset.maxBytes);
  if (bytes > limit)
    throw new Error(
      `The files have ${sizeOf(bytes)}, but this server accepts ` +
        `${sizeOf(limit)}; choose less.`,
    );
}

// The request

function authorization() {
  const key = at("key").value.trim();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// Returns the response, or throws the sentence of the server.
async function checked(response) {
  if (response.ok) return response;
  if (response.status === 401) at("key-field").hidden = false;
  let message = `the server answered with status ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // a proxy may answer in another format
  }
  throw new Error(sentenceOf(message));
}

function sentenceOf(message) {
  return `${message[0].toUpperCase()}${message.slice(1).replace(/\.$/, "")}.`;
}

// Yields the names and data of server-sent events.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    waiting = (waiting + (value ?? "")).replaceAll("\r\n", "\n");
    const blocks = waiting.split("\n\n");
    waiting = done ? "" : blocks.pop();
    for (const block of blocks) {
      const fields = block
        .split("\n")
        .map((line) => line.match(/^(\w+): ?(.*)$/) ?? []);
      const valuesOf = (field) =>
        fields.filter(([, name]) => name === field).map(([, , v]) => v);
      const data = valuesOf("data").join("\n");
      if (data) yield { name: valuesOf("event")[0], data: JSON.parse(data) };
    }
    if (done) return;
  }
}

// Returns the answer; shows the parts of summaries that come before.
async function answerOf(response, title, isCompared) {
  const type = response.headers.get("Content-Type") ?? "";
  if (!type.startsWith("text/event-stream")) return response.json();
  let answer = null;
  for await (const { name, data } of events(response.body)) {
    if (name === "error") throw new Error(sentenceOf(data.error.message));
    if (name === "result") answer = data;
    else showPart(name, data, title, isCompared);
  }
  if (!answer) throw new Error("The server closed the connection; try again.");
  return answer;
}

async function send(isCompared) {
  if (request) return;
  showProblem("");
  let stop = () => {};
  try {
    const chosenSettings = settings();
    checkInput();
    const input = inputName();
    const isPasted = !files.length;
    request = new AbortController();
    stop = showProgress();
    const { content, headers } = body(chosenSettings);
    const response = await fetch("v1/summaries", {
      method: "POST",
      body: content,
      headers: { ...headers, ...authorization() },
      signal: request.signal,
    });
    const title = titleOf(chosenSettings);
    const isSame = isCompared && input === shownInput;
    const answer = await answerOf(await checked(response), title, isSame);
    const summaries = answer.summaries.map(withoutError);
    if (isPasted) summaries[0].document = PASTED;
    const run = { ...chosenSettings, model: answer.model, summaries };
    runs = isSame ? [...runs.slice(0, 1), run] : [run];
    shownInput = input;
    stop("Summary finished");
    showRuns(isSame ? Number(at("document").value) : 0);
    at("name").focus({ preventScroll: true });
    at("reader").scrollIntoView({ block: "start" });
  } catch (error) {
    stop(error.name === "AbortError" ? "Cancelled" : "");
    if (error.name !== "AbortError") showProblem(messageOf(error));
    if (document.querySelector(".partial"))
      showRuns(Number(at("document").value));
  } finally {
    request = null;
    showCompare();
  }
}

function messageOf(error) {
  if (!(error instanceof TypeError)) return error.message;
  console.error(error);
  return "The server cannot be reached; check that it is running.";
}

function showProblem(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

// Returns a function that ends the display with a message.
function showProgress() {
  const began = Date.now();
  const show = () => {
    at("seconds").textContent = `${Math.round((Date.now() - began) / 1000)} s`;
  };
  const timer = setInterval(show, 1000);
  at("status").textContent = "Reading and summarizing";
  at("seconds").textContent = "";
  at("summarize").disabled = at("compare").disabled = true;
  at("cancel").hidden = false;
  return (message = "") => {
    clearInterval(timer);
    at("status").textContent = message;
    at("seconds").textContent = message
      ? `in ${((Date.now() - began) / 1000).toFixed(1)} s`
      : "";
    const wasFocused = document.activeElement === at("cancel");
    at("summarize").disabled = at("compare").disabled = false;
    at("cancel").hidden = true;
    if (wasFocused) at("summarize").focus();
  };
}

// Shows the part of a summary that is being written. If the request fails,
// showRuns restores the summaries before.
function showPart(kind, part, title, isCompared) {
  if (part.document) return; // only the first document is shown
  let shown = document.querySelector(".partial");
  if (!shown) {
    at("status").textContent = "Writing";
    if (!isCompared) {
      showTexts([], [], "");
      at("name").textContent = files.length ? files[0].name : PASTED;
      at("which").hidden = true;
    }
    shown = card(title, "writing", { pieces: [], support: [] }, "partial");
    shown.lastChild.replaceChildren();
    at("summaries").append(shown);
    at("reader").hidden = false;
  }
  shown.lastChild.append(part.text, kind === "segment" ? "\n" : "");
}

// The results

function showCompare() {
  at("compare").hidden = !runs.length || inputName() !== shownInput;
  const model = chosenModel()?.id;
  const isOther = runs.length && model && model !== runs[0].model;
  at("compare").textContent = isOther
    ? `Compare with ${model}`
    : "Compare with these settings";
}

// Returns an empty summary for a document that could not be summarized.
function withoutError(answer) {
  if (!answer.error) return answer;
  const problem = sentenceOf(answer.error.message);
  return {
    document: answer.document,
    summary: "",
    sources: [],
    document_text: "",
    problem,
  };
}

// A function that cuts a text at positions in characters of Unicode.
function cutter(text) {
  if (!SURROGATE.test(text)) return (start, end) => text.slice(start, end);
  const characters = [...text];
  return (start, end) => characters.slice(start, end).join("");
}

// Returns the document in pieces, and the index of the piece for each source.
function cutDocument(text, statements) {
  const sources = statements.flatMap((statement) => statement.sources);
  const starts = new Map(sources.map(({ start, end }) => [start, end]));
  const cut = cutter(text);
  const pieces = [];
  const numbers = new Map();
  let offset = 0;
  for (const [start, end] of [...starts].sort(([a], [b]) => a - b)) {
    if (start < offset) continue; // overlaps the source before
    if (start > offset) pieces.push(cut(offset, start));
    numbers.set(start, pieces.length);
    pieces.push(cut(start, end));
    offset = end;
  }
  pieces.push(cut(offset));
  return [pieces, numbers];
}

// Returns the pages and headings of the sources of a sentence, and its entities
// that are missing in the document.
function note(statement) {
  const places = statement.sources.map(({ page, heading }) =>
    [page && `page ${page}`, heading && `under \u201c${heading}\u201d`]
      .filter(Boolean)
      .join(", "),
  );
  const named = [...new Set(places.filter(Boolean))].join("; ");
  const missing = statement.flags
    .filter((flag) => flag.missing === "document")
    .map((flag) => `\u201c${flag.text}\u201d`);
  const parts = [];
  if (named) parts.push(`${named[0].toUpperCase()}${named.slice(1)}.`);
  if (missing.length) parts.push(`Not in the document: ${missing.join(", ")}.`);
  return parts.join(" ");
}

function textOf(answer, numbers) {
  const cut = cutter(answer.summary);
  const ends = answer.sources.map((statement) => statement.end);
  return {
    pieces: ends.map((end, i) => cut(i ? ends[i - 1] : 0, end)),
    support: answer.sources.map(({ sources }) =>
      sources
        .filter(({ start }) => numbers.has(start))
        .map(({ start, score }) => [numbers.get(start), score]),
    ),
    notes: answer.sources.map(note),
  };
}

const words = (text) => text.split(/\s+/).filter(Boolean).length;

function factsOf(answer) {
  if (answer.problem) return answer.problem;
  const parts = [counted(words(answer.summary), "word")];
  const unsupported = answer.sources.filter(
    (statement) => !statement.is_supported,
  ).length;
  if (unsupported) parts.push(counted(unsupported, "unsupported sentence"));
  if (answer.dropped_tokens)
    parts.push(
      `${whole(answer.read_tokens)} of ${whole(answer.document_tokens)} tokens read`,
    );
  return parts.join(" \u00b7 ");
}

function titleOf({ title, query }) {
  return query ? `${title}: ${query}` : title;
}

function markdown(run, answer) {
  const about = [titleOf(run), factsOf(answer), run.model].join(" \u00b7 ");
  const name = answer.document.replace(/\s+/g, " ");
  return `## ${name}\n\n${answer.summary}\n\n*${about}*\n`;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // without HTTPS
    const area = element("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  at("status").textContent = "Copied as Markdown";
  at("seconds").textContent = "";
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy as Markdown"), 2000);
}

function article(run, i, number, numbers) {
  const answer = run.summaries[number];
  const made = card(titleOf(run), factsOf(answer), textOf(answer, numbers), "");
  made.setAttribute("aria-label", `Summary ${i + 1}: ${titleOf(run)}`);
  const copying = element("button", {
    type: "button",
    textContent: "Copy as Markdown",
  });
  copying.addEventListener("click", () => copy(markdown(run, answer), copying));
  const actions = element("div", { className: "actions" }, copying);
  if (runs.length > 1) {
    const removing = element("button", {
      type: "button",
      className: "remove",
      textContent: "Remove",
      ariaLabel: `Remove summary ${i + 1}: ${titleOf(run)}`,
    });
    removing.addEventListener("click", () => {
      runs.splice(i, 1);
      showRuns(number);
      at("name").focus();
    });
    actions.append(removing);
  }
  made.append(actions);
  return made;
}

// Shows the summaries of one document in all runs.
function showRuns(number) {
  at("reader").hidden = at("skip").hidden = !runs.length;
  if (!runs.length) return at("summaries").replaceChildren();
  const names = runs[0].summaries.map((answer) => answer.document);
  const options = names.map(
    (name, i) => new Option(name, i, false, i === number),
  );
  at("document").replaceChildren(...options);
  at("which").hidden = names.length < 2;
  at("name").textContent = names[number];
  const answers = runs.map((run) => run.summaries[number]);
  const text = answers[0].document_text;
  const statements = answers.flatMap((answer) => answer.sources);
  const [pieces, numbers] = cutDocument(text, statements);
  const isSupported = statements.every((statement) => statement.is_supported);
  at("reader-note").textContent =
    "Select a sentence to see its sources in the document." +
    (isSupported
      ? ""
      : ` Dotted sentences are unsupported: ${wording().note()}`);
  const articles = runs.map((run, i) => article(run, i, number, numbers));
  showTexts(articles, pieces, counted(words(text), "word"));
}

function download() {
  const page = PAGE.cloneNode(true);
  const data = { runs, facts: modelFacts(runs.map((run) => run.model)) };
  page.querySelector("#saved").textContent = JSON.stringify(data);
  const name = at("name").textContent;
  page.querySelector("title").textContent = `Summary of ${name}`;
  const blob = new Blob([`<!DOCTYPE html>\n${page.outerHTML}`], {
    type: "text/html",
  });
  const address = URL.createObjectURL(blob);
  const file = name
    .replace(/\.\w{1,5}$/, "")
    .replace(/[^\p{L}\p{N}._-]+/gu, "_");
  element("a", { href: address, download: `${file}_summary.html` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// The start

// Returns a line with the names of models.
function modelFacts(names) {
  const facts = [...new Set(names)].map((name) => {
    const model = models.find(({ id }) => id === name);
    return model?.is_extractive ? `${name} (selects sentences)` : name;
  });
  return `${facts.length > 1 ? "Models" : "Model"}: ${facts.join(", ")}`;
}

async function showModels() {
  try {
    const response = await checked(
      await fetch("v1/models", { headers: authorization() }),
    );
    models = (await response.json()).data;
    const names = models.map(({ id }) => id);
    at("model").replaceChildren(...names.map((name) => new Option(name)));
    at("model-field").hidden = names.length < 2;
    at("facts").textContent = modelFacts(names);
  } catch (error) {
    const needsKey = !at("key-field").hidden;
    at("facts").textContent = needsKey
      ? "This server needs an API key."
      : messageOf(error);
  }
}

function listenToDrops() {
  const showOver = (isOver) => at("drop").classList.toggle("over", isOver);
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    showOver(true);
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) showOver(false);
  });
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    showOver(false);
    if (event.dataTransfer.files.length) chooseFiles(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData.files.length)
      chooseFiles(event.clipboardData.files);
  });
}

function listen() {
  listenToDrops();
  at("file").addEventListener("change", () => chooseFiles(at("file").files));
  at("remove-file").addEventListener("click", () => {
    chooseFiles([]);
    at("file").focus();
  });
  at("text").addEventListener("input", showCompare);
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(false);
  });
  at("key").addEventListener("change", showModels);
  at("model").addEventListener("change", showCompare);
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send(false);
  });
  at("compare").addEventListener("click", () => send(true));
  at("cancel").addEventListener("click", () => request?.abort());
  at("download").addEventListener("click", download);
}

function startPage() {
  const { supported, maxSources } = document.body.dataset;
  index = {
    alignment: { by: "words" },
    supported: Number(supported),
    max_sources: Number(maxSources),
  };
  at("document").addEventListener("change", () =>
    showRuns(Number(at("document").value)),
  );
  listenToSentences();
  const saved = at("saved").textContent;
  if (saved) {
    document.body.dataset.saved = "";
    const data = JSON.parse(saved);
    runs = data.runs;
    at("facts").textContent = data.facts;
    document.querySelector("h1").textContent = document.title;
    showRuns(0);
    return;
  }
  listen();
  showModels();
}

startPage();
