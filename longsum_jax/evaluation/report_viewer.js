// Summaries with a document: a selected sentence marks its sources. The page of
// the server shares this file.

let selected = null; // a sentence of a summary
let documentFacts = ""; // shown while no sentence is selected

const held = (support) => total(support.map(([, score]) => score));

const PIECE = /^(\s*)([^]*)$/; // white space, and a sentence

function sentence(piece, support, first, note) {
  const [, space, text] = piece.match(PIECE);
  const made = element("span", {
    className: "sentence",
    textContent: text,
    tabIndex: first ? 0 : -1,
  });
  made.setAttribute("role", "button");
  made.setAttribute("aria-pressed", "false");
  if (held(support) < index.supported) {
    made.classList.add("unsupported");
    made.append(element("span", { className: "hidden", textContent: " (unsupported)" }));
  }
  made.support = support;
  made.note = note;
  return [space, made];
}

// The text may have notes, one for each sentence, that follow its support.
function card(title, facts, text, className) {
  const sentences = text.pieces.flatMap((piece, i) =>
    sentence(piece, text.support[i], i === 0, text.notes?.[i] ?? ""),
  );
  const body = element(
    "div",
    { className: "text", dir: "auto" },
    ...(sentences.length ? sentences : ["(empty)"]),
  );
  return element(
    "article",
    { className },
    element("h3", { textContent: title }),
    element("p", { className: "facts", textContent: facts }),
    body,
  );
}

// Shows articles made by card, and the pieces of their document.
function showTexts(articles, pieces, facts) {
  selected = null;
  documentFacts = facts;
  at("summaries").replaceChildren(...articles);
  const spans = pieces.map((piece) => element("span", { textContent: piece }));
  at("source").replaceChildren(...spans);
  at("source").scrollTop = 0;
  at("support").textContent = facts;
}

function clearMarks() {
  for (const mark of at("source").querySelectorAll("mark")) {
    mark.querySelector("sup").remove();
    mark.replaceWith(element("span", { textContent: mark.textContent }));
  }
}

function choose(sentence) {
  clearMarks();
  selected?.setAttribute("aria-pressed", "false");
  selected = selected === sentence ? null : sentence;
  if (!selected) {
    at("support").textContent = documentFacts;
    return;
  }
  selected.setAttribute("aria-pressed", "true");
  const pieces = [...at("source").children];
  const marks = selected.support.map(([i, score]) => {
    const [, space, text] = pieces[i].textContent.match(PIECE);
    const mark = element("mark", {}, text, element("sup", { textContent: percent(score) }));
    pieces[i].replaceChildren(space, mark);
    return mark;
  });
  at("support").textContent = `${describeSupport(selected.support)} ${selected.note}`.trimEnd();
  if (marks.length) {
    const view = at("source");
    const top = marks[0].getBoundingClientRect().top - view.getBoundingClientRect().top;
    view.scrollTop += top - view.clientHeight / 3;
  }
}

function describeSupport(support) {
  if (!support.length) return `Unsupported: ${wording().nothing}`;
  const sentences = support.length === 1 ? "one sentence" : `${support.length} sentences`;
  const isSupported = held(support) >= index.supported;
  const start = isSupported
    ? "Based on"
    : support.length === 1
      ? "Unsupported: closest is"
      : "Unsupported: closest are";
  return `${start} ${sentences}, ${wording().held(support.length, percent(held(support)))}.`;
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

function listenToSentences() {
  at("summaries").addEventListener("click", (event) => {
    const clicked = event.target.closest(".sentence");
    if (clicked) choose(clicked);
  });
  at("summaries").addEventListener("keydown", onSentenceKey);
}
