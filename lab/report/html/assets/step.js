// The chosen step: what it was, where it was called, its picture, and who waited for whom.

import { element, sourceLink } from "lab/dom";
import { ASYNCHRONOUS, stateOf, titleOf } from "lab/model";
import { bytes, capital, duration, nameRanks } from "lab/words";

export function startStep(model, choice) {
  const panel = document.getElementById("step");
  choice.onChange((number) => {
    if (number) panel.replaceChildren(...describe(model, number));
    else panel.replaceChildren(element("p", { class: "quiet-text" }, "Choose a step."));
  });
}

function describe(model, number) {
  const calls = [...model.callsOf(number)];
  const missing = model.steps.missing[number] ?? [];
  return [
    element("h3", {}, titleOf(model, number)),
    summary(model, number, calls[0]),
    picture(model, number),
    waiting(model, number, calls, missing),
    table(model, number, calls, missing),
  ];
}

function summary(model, number, call) {
  const { calls, steps } = model;
  const parts = [];
  const at = model.word(calls.at[call]);
  if (at) parts.push(sourceLink(at));
  const via = model.word(calls.via[call]);
  if (via && via !== model.word(calls.op[call])) parts.push(`through ${via}`);
  const phase = model.word(calls.phase[call]);
  if (phase) parts.push(`in ${phase}`);
  if (calls.bucket[call] >= 0) parts.push(`bucket ${calls.bucket[call]} (${model.word(calls.params[call])})`);
  parts.push(bytes(steps.bytes[number - 1]));
  const took = steps.end[number - 1];
  parts.push(took < 0 ? stateOf(model, number) : duration(took));
  if (calls.flags[call] & ASYNCHRONOUS) parts.push("asynchronous");
  return element("p", { class: "quiet-text summary" }, ...parts.flatMap((part, i) => (i ? [" · ", part] : [part])));
}

function picture(model, number) {
  const shown = model.steps.picture[number - 1];
  const markup = model.pictures[shown];
  if (!markup) return null;
  const holder = element("div", { class: "drawing", "data-step": shown });
  holder.append(document.importNode(new DOMParser().parseFromString(markup, "image/svg+xml").documentElement, true));
  if (shown === number) return holder;
  const words = `The picture is that of step ${shown}, the same call at the same line; its values may differ.`;
  return element("div", {}, holder, element("p", { class: "quiet-text" }, words));
}

function waiting(model, number, calls, missing) {
  if (missing.length) {
    const words = `${capital(nameRanks(missing))} never entered, so nobody could be done.`;
    return element("p", { class: "bad waiting" }, words);
  }
  const last = model.steps.last[number - 1];
  const longest = calls.reduce((a, b) => (model.calls.wait[b] > model.calls.wait[a] ? b : a));
  const waited = model.calls.wait[longest];
  if (last < 0 || waited <= 0) return null;
  const words = `Rank ${model.rankOf[longest]} waited ${duration(waited)} for rank ${last}`;
  const others = calls.filter((call) => model.calls.wait[call] > 0).length - 1;
  return element("p", { class: "waiting" }, others > 0 ? `${words}; ${others} more waited too.` : `${words}.`);
}

function table(model, number, calls, missing) {
  const first = model.stepBegin[number - 1];
  const heads = ["rank", "call", "entered", "waited", "took", "bytes", ""];
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const rows = calls.map((call) => {
    const failed = model.calls.errors[call];
    const open = model.calls.dur[call] < 0;
    const end = failed ?? (open ? "never done" : "");
    return element(
      "tr",
      {},
      element("td", {}, chip(model.rankOf[call])),
      element("td", {}, model.word(model.calls.op[call])),
      element("td", {}, `+${duration(model.begin[call] - first)}`),
      element("td", {}, model.calls.wait[call] < 0 ? "–" : duration(model.calls.wait[call])),
      element("td", {}, open ? "–" : duration(model.calls.dur[call])),
      element("td", {}, bytes(model.calls.bytes[call])),
      element("td", { class: "bad" }, end),
    );
  });
  for (const rank of missing) {
    const words = element("td", { class: "bad", colspan: "6" }, "never entered");
    rows.push(element("tr", {}, element("td", {}, chip(rank)), words));
  }
  const whole = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranks of this step" }, whole);
}

export function chip(rank) {
  return element("span", { class: `chip rank-${rank}` }, rank >= 0 ? `rank ${rank}` : "check");
}
