// Starts the page. Its address says what is shown: all, or #document=7.

function close() {
  if (shown === null) return;
  const position = order.indexOf(shown);
  shown = null;
  at("reader").hidden = true;
  at("overview").hidden = false;
  drawPlots();
  at("documents").scrollIntoView();
  if (isForReaders()) at("list").querySelectorAll("a")[order[position]]?.focus();
  else focusRow(position);
}

// Whether the page shows summaries of one system to read, without anything to compare them with.
const isForReaders = () => index.systems.length === 1 && !index.has_references;

// Puts the documents first, and folds all that is measured below them.
function arrangeForReaders() {
  const [first, ...others] = index.documents.id;
  const more = others.length ? ` and ${whole(others.length)} more` : "";
  document.title = `${others.length ? "Summaries" : "Summary"} of ${first}${more}`;
  document.querySelector("h1").textContent = document.title;
  chosen.key = "place"; // the order of the command line
  if (size() === 1) {
    at("back").textContent = "Measurements";
    at("place").hidden = true;
    document.querySelector("#reader .pair").hidden = true;
  }
  const sections = [...at("overview").children];
  const measured = element("details", { id: "measured" });
  measured.append(element("summary", { textContent: "Measurements" }), ...sections.slice(0, -1));
  measured.addEventListener("toggle", drawPlots);
  at("overview").append(measured);
  at("documents").textContent = size() === 1 ? "Summary" : "Summaries";
}

// The sizes of the documents and their summaries in words.
function factsForReaders() {
  const documents = counted(size(), "document");
  const summaries = size() === 1 ? "summary" : "summaries";
  const words = counted(total(index.documents.words), "word");
  return `${documents}, ${words}; ${summaries} of ${counted(total(index.words[0]), "word")}`;
}

function numberInAddress() {
  const number = Number(location.hash.match(/^#document=(\d+)$/)?.[1] ?? NaN) - 1;
  if (isForReaders() && size() === 1 && !location.hash) return 0;
  return number >= 0 && number < size() ? number : null;
}

function follow() {
  const number = numberInAddress();
  return number === null ? close() : open(number);
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
  listenToSentences();
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
  if (!("DecompressionStream" in window))
    throw new Error("this browser is too old; Chrome 97, Firefox 113 and Safari 16.4 can");
  index = await unpack("index");
  chosen.metric = index.main_column;
  const count = index.systems.length;
  const systems = count > 1 ? `${count} systems` : "one system";
  document.title = `Summaries of ${joined(index.systems.map((system) => system.name))}`;
  if (isForReaders()) arrangeForReaders();
  at("facts").textContent = isForReaders()
    ? factsForReaders()
    : `${systems}, ${counted(size(), "document")}, longsum_jax ${index.version}`;
  at("metric").append(
    ...index.columns.map((name) => new Option(name, name, false, name === chosen.metric)),
  );
  at("reader-note").textContent = isForReaders()
    ? "Select a sentence to see its sources in the document. " +
      "A dotted underline marks sentences without sources."
    : "Select a sentence to see the sentences of the document that it is based on. Dotted " +
      `sentences are unsupported: ${wording().note()}`;
  at("overview").hidden = false;
  makePlots();
  showScores();
  showPublished();
  chooseMetric(chosen.metric);
  listen();
  await follow();
  if (isForReaders()) await listSummaries();
}

start().catch((error) => {
  at("problem").textContent = `The report cannot be shown: ${error.message}.`;
  at("problem").hidden = false;
});
