// A run as it happens. The server pushes the whole state each time, and of the lines those that are new; text is text.

import { element } from "lab/dom";
import { startPresentation } from "lab/present";
import { startTheme } from "lab/theme";
import { duration, nameRanks, plural } from "lab/words";

const MOST_LINES = 500;
const MOST_CALLS = 5;
const MOST_ARROWS = 64;
const MOST_WORTH_TELLING = 0.1;
const MOST_SLIDES = 200;
const byId = (id) => document.getElementById(id);

export function start() {
  startTheme(byId("theme"), () => {});
  const slides = makeSlides();
  startKeys();
  const source = new EventSource("events");
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    setHidden(byId("connection"), true);
    showState(told.state);
    if (told.pictures) {
      showPictures(told.pictures);
      slides.add(told.pictures.current);
    }
    showLines(told.lines, told.left_out ?? 0);
    document.documentElement.dataset.events = Number(document.documentElement.dataset.events ?? 0) + 1;
    if (told.done) {
      source.close();
      document.documentElement.dataset.done = "true";
      setHidden(byId("report"), !told.state.verdict);
    }
  };
  source.onerror = () => {
    setText(byId("connection"), "The connection to the run is lost; the page tries again.");
    setHidden(byId("connection"), false);
  };
}

// ---------------------------------------------------------------------------------------------------- step by step

function startKeys() {
  byId("step").onclick = () => ask("step");
  byId("run-on").onclick = () => ask("run-on");
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || byId("step").hidden) return;
    const asked = { " ": "step", c: "run-on", C: "run-on" }[event.key];
    if (!asked) return;
    event.preventDefault(); // nor does a button that has the focus act a second time
    ask(asked);
  });
}

function ask(what) {
  fetch(what, { method: "POST" }).catch(() => {}); // a lost connection is told by the stream
}

// ------------------------------------------------------------------------------------------------------------ state

function showState(state) {
  setText(byId("scenario"), state.scenario);
  const elapsed = state.elapsed_s === null ? "" : `${duration(state.elapsed_s * 1e6)}, ${state.engine} engine`;
  setText(byId("elapsed"), elapsed);
  setHidden(byId("step"), !state.stepping || state.over);
  setHidden(byId("run-on"), !state.stepping || state.over);
  byId("step").disabled = !state.next;
  byId("step").title = state.next ? `Continue: ${state.next}` : "No rank is held";
  const verdict = byId("verdict");
  setHidden(verdict, !state.verdict);
  if (state.verdict) {
    verdict.style.setProperty("--tone", `var(--${state.tone})`);
    setText(verdict.querySelector(".sign"), `${state.sign} ${state.verdict}`);
    setText(verdict.querySelector(".reason"), state.reason);
    document.title = `${state.sign} ${state.verdict} – ${state.scenario} – lab watch`;
  }
  const remarks = byId("remarks");
  setHidden(remarks, !state.remarks.length);
  if (changed(remarks, state.remarks)) remarks.replaceChildren(...state.remarks.map((one) => element("li", {}, one)));
  showRanks(state);
}

function showRanks({ ranks, colours, over }) {
  const list = byId("ranks");
  if (
    changed(
      list,
      ranks.map(({ name }) => name),
    )
  ) {
    list.replaceChildren(...ranks.map(card));
    list.classList.toggle("many", ranks.length > 6);
  }
  ranks.forEach((rank, i) => {
    const [head, told, since, place, calls] = list.children[i].children;
    list.children[i].dataset.state = rank.bad ? "bad" : rank.state;
    setText(head.lastElementChild, rank.node);
    setText(told, rank.activity);
    showSince(since, rank, ranks, over);
    setText(place, rank.location);
    if (changed(calls, [rank.recent, over]))
      calls.replaceChildren(...rank.recent.slice(-MOST_CALLS).map((call) => showCall(call, colours, over)));
  });
  showWaits(list, ranks, over);
}

// An arrow below the ranks, from each that waits to whom it waits for, where they stand side by side.
function showWaits(list, ranks, over) {
  const holder = byId("waits");
  const cards = new Map(ranks.map((rank, i) => [rank.rank, list.children[i]]));
  const pairs = over ? [] : ranks.flatMap((rank) => rank.waits_for.map((other) => [rank.rank, other]));
  const shown = pairs.filter(([, to]) => cards.has(to)).slice(0, MOST_ARROWS);
  if (!changed(holder, [shown, list.clientWidth])) return;
  const [width, height] = [holder.clientWidth, holder.clientHeight];
  const middle = (rank) => cards.get(rank).offsetLeft - list.offsetLeft + cards.get(rank).offsetWidth / 2;
  const beside = ([from, to]) => cards.get(from).offsetTop === cards.get(to).offsetTop;
  holder.replaceChildren(...shown.filter(beside).map(([from, to]) => arrow(middle(from), middle(to), width, height)));
}

function arrow(from, to, width, height) {
  const start = from + Math.sign(to - from) * width * 0.01;
  const end = to - Math.sign(to - from) * width * 0.01;
  const low = height * (0.75 + 0.5 * (Math.abs(to - from) / width));
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${start} 0C${start} ${low} ${end} ${low} ${end} 6M${end - 6} 11L${end} 2L${end + 6} 11`);
  return path;
}

function card(rank) {
  const chip = element("b", { class: "chip" }, rank.name);
  const parts = [
    element("p", { class: "who" }, chip, element("span", {})),
    element("p", { class: "told" }),
    element("p", { class: "since" }),
    element("p", { class: "place code" }),
    element("ol", { class: "calls plain", "aria-label": `Last calls of ${rank.name}` }),
  ];
  const made = element("li", { class: "box", "data-rank": rank.rank }, ...parts);
  made.style.setProperty("--rank", rank.colour);
  return made;
}

// For how long, and for whom it waits, in the colours of those.
function showSince(holder, rank, ranks, over) {
  const long = rank.since_s !== null && rank.since_s >= MOST_WORTH_TELLING && !over;
  const took = long ? duration(Math.round(rank.since_s * 10) * 1e5) : "";
  if (!changed(holder, [took, rank.waits_for])) return;
  const chips = rank.waits_for.slice(0, 8).map((other) => {
    const chip = element("b", { class: "chip" }, `rank ${other}`);
    chip.style.setProperty("--rank", ranks.find((one) => one.rank === other)?.colour ?? "");
    return chip;
  });
  if (rank.waits_for.length > 8) chips.splice(0, 8, nameRanks(rank.waits_for));
  holder.replaceChildren(
    element("span", {}, took),
    ...(chips.length ? [element("span", { class: "waits" }, "waits for ", ...chips)] : []),
  );
}

function showCall(call, colours, over) {
  const swatch = element("i", { class: "swatch" });
  swatch.style.setProperty("--op", colours[call.op] ?? "");
  const told = { completed: call.took, inside: over ? "never done" : "…" }[call.state] ?? call.state;
  const took = element("small", {}, told);
  return element(
    "li",
    { "data-state": call.state, title: call.location },
    swatch,
    element("span", {}, call.text),
    took,
  );
}

// --------------------------------------------------------------------------------------------------------- pictures

function showPictures(pictures) {
  showPicture(byId("current"), pictures.current, "");
  showPicture(byId("next"), pictures.next, "Next: ");
}

function showPicture(holder, picture, before) {
  setHidden(holder, !picture);
  if (!picture) return;
  const place = picture.place ? [" ", element("small", {}, picture.place)] : [];
  holder.querySelector("h3").replaceChildren(before, picture.title, ...place);
  const drawing = new DOMParser().parseFromString(picture.svg, "image/svg+xml").documentElement;
  holder.querySelector(".drawing").replaceChildren(document.importNode(drawing, true));
}

// The pictures so far, for the presentation. Next after the last one lets a step go.
function makeSlides() {
  const [seen, button] = [[], byId("present")];
  let at = 0;
  const slides = {
    current() {
      const one = seen[at];
      if (!one) return null;
      return { title: one.title, place: one.place, position: `${at + 1} of ${seen.length}`, markup: one.svg };
    },
    move(by) {
      const before = at;
      at = Math.max(0, Math.min(seen.length - 1, at + by));
      if (at === before && by > 0 && !byId("step").hidden && !byId("step").disabled) ask("step");
      return at !== before;
    },
  };
  const presentation = startPresentation(slides, button);
  return {
    add(picture) {
      if (!picture) return;
      const follows = at >= seen.length - 1;
      const fresh = seen.at(-1)?.title !== picture.title;
      if (fresh) seen.push(picture);
      else seen[seen.length - 1] = picture;
      if (seen.length > MOST_SLIDES) {
        seen.shift();
        at = Math.max(0, at - 1);
      }
      button.disabled = false;
      if (!follows) return;
      at = seen.length - 1;
      presentation.refresh(fresh);
    },
  };
}

// ------------------------------------------------------------------------------------------------------------ lines

function showLines(lines, leftOut) {
  const log = byId("log");
  const last = Number(log.dataset.last ?? 0);
  const fresh = lines.filter((line) => line.n > last);
  if (!fresh.length) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  if (leftOut)
    log.append(element("li", { class: "gap" }, element("span", {}, `${plural(leftOut, "line")} left out here`)));
  log.append(...fresh.map(logLine));
  while (log.children.length > MOST_LINES) log.firstElementChild.remove();
  log.dataset.last = fresh.at(-1).n;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function logLine({ rank, stream, time, text }) {
  const made = element(
    "li",
    { class: stream === 2 ? "err" : "" },
    element("time", {}, time),
    element("b", {}, rank >= 0 ? String(rank) : "check"),
    stream === 2 ? element("i", { class: "bad", title: "standard error" }, "err") : element("i", {}),
    element("span", {}, text),
  );
  const colour = document.querySelector(`#ranks [data-rank="${rank}"]`)?.style.getPropertyValue("--rank");
  if (colour) made.style.setProperty("--rank", colour);
  return made;
}

// ------------------------------------------------------------------------------------------ what changes is touched

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

function changed(node, data) {
  const key = JSON.stringify(data);
  if (node.dataset.shown === key) return false;
  node.dataset.shown = key;
  return true;
}
