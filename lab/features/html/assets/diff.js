// Begins the page of two runs: their timelines move together, and what is chosen in one is chosen in the other.

import { makeChoice } from "lab/choice";
import { chip, element, paragraph } from "lab/dom";
import { startKeys } from "lab/keys";
import { buildModel, unpack } from "lab/model";
import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";
import { startTimeline } from "lab/timeline";
import { duration, nameRanks } from "lab/words";

const BEFORE_CALLS = 0.05; // part of the longer run that is shown before the first calls

export async function start() {
  const data = await unpack(byId("data"));
  const models = data.runs.map((run, i) => ({ ...buildModel(run), sign: "−+"[i] }));
  const choices = models.map(({ steps }) => makeChoice(steps));
  const spans = alignSpans(models);
  let moving = false;
  const timelines = [];
  models.forEach((model, i) => {
    timelines.push(
      startTimeline(byId(`run-${i}`), model, choices[i], { span: spans[i], zoomed: (to) => follow(1 - i, to) }),
    );
  });

  function follow(other, transform) {
    if (moving) return;
    moving = true;
    timelines[other]?.zoomTo(transform);
    moving = false;
  }

  const both = new Proxy(
    {},
    {
      get:
        (_, name) =>
        (...given) =>
          timelines[0][name](...given),
    },
  );
  startTheme(byId("theme"), () => {
    for (const one of timelines) one.restyle();
  });
  startKeys(choices[0], both);
  byId("zoom-in").onclick = () => both.zoomBy(2);
  byId("zoom-out").onclick = () => both.zoomBy(0.5);
  byId("zoom-all").onclick = both.showAll;
  byId("zoom-step").onclick = both.showStep;
  linkChoices(models, choices, data.pairs);
  for (const table of document.querySelectorAll(".sortable")) makeSortable(table);
  document.documentElement.dataset.ready = "true";
}

// What each timeline shows as a whole: the same stretch around the first call of each.
function alignSpans(models) {
  const firsts = models.map(({ calls, span }) => calls.reduce((first, call) => Math.min(first, call.begin), span[1]));
  const longest = Math.max(...models.map(({ span }, i) => span[1] - firsts[i]), 1);
  return firsts.map((first) => [first - longest * BEFORE_CALLS, first + longest]);
}

function linkChoices(models, choices, pairs) {
  const others = [new Map(pairs), new Map(pairs.map(([one, other]) => [other, one]))];
  let linking = false;
  choices.forEach((choice, i) => {
    choice.onChange((step, origin) => {
      if (linking) return;
      linking = true;
      choices[1 - i].set(others[i].get(step?.number) ?? 0, origin);
      linking = false;
      byId("pair").replaceChildren(...describe(choices.map(({ number }, run) => models[run].steps[number - 1])));
    });
  });
}

function describe(steps) {
  const known = steps.filter(Boolean);
  if (!known.length)
    return [paragraph("Choose a step in one of the timelines: the other shows the same one.", "quiet-text")];
  const head = element("tr", {}, ...["run", "step", "line", "took", "waited for", "ranks"].map(heading));
  const rows = steps.map((step, run) => element("tr", {}, ...cells(step, run)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return [element("h3", {}, known[0].title), element("div", { class: "scroll" }, table)];
}

function heading(text) {
  return element("th", { scope: "col" }, text);
}

function cells(step, run) {
  const name = element("th", { scope: "row" }, run ? "+ second" : "− first");
  if (!step) return [name, element("td", { colspan: "5" }, "not in this run")];
  const waited = step.calls.some((call) => call.wait > 0) && step.last >= 0 ? chip(step.last) : "–";
  const words = [step.title, step.calls[0].at, step.open ? step.state : duration(step.dur), waited];
  return [name, ...[...words, nameRanks(step.calls.map((call) => call.rank))].map((text) => element("td", {}, text))];
}

function byId(id) {
  return document.getElementById(id);
}
