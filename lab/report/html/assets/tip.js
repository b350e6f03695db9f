// What is under the pointer, in words.

import { element } from "lab/dom";
import { titleOf } from "lab/model";
import { bytes, clip, duration, nameRanks } from "lab/words";

// A call: the operation first, then the line of the script, then how long and for whom it waited.
export function callTip(model, call) {
  const { calls } = model;
  const rank = model.rankOf[call];
  const step = calls.step[call];
  const lines = [element("b", {}, step ? titleOf(model, step) : model.word(calls.op[call]))];
  const where = [`rank ${rank}`, model.word(calls.at[call]), model.word(calls.phase[call])].filter(Boolean).join(" · ");
  lines.push(element("p", {}, where));
  if (calls.bucket[call] >= 0) {
    lines.push(element("p", {}, `DDP bucket ${calls.bucket[call]}: ${model.word(calls.params[call])}`));
  }
  const open = calls.dur[call] < 0;
  const took = open ? "never done" : duration(calls.dur[call]);
  lines.push(element("p", open ? { class: "bad" } : {}, `${took}, ${bytes(calls.bytes[call])}`));
  const waited = waitedFor(model, call, rank, step);
  if (waited) lines.push(element("p", {}, waited));
  if (calls.errors[call]) lines.push(element("p", { class: "bad" }, calls.errors[call]));
  return lines;
}

function waitedFor(model, call, rank, step) {
  if (!step) return "";
  const missing = model.steps.missing[step];
  if (missing) return `waited for ${nameRanks(missing)}, which never entered`;
  const last = model.steps.last[step - 1];
  const waited = model.calls.wait[call];
  if (last === rank)
    return model.callsOf(step).some((one) => model.calls.wait[one] > 0) ? "the others waited for it" : "";
  return waited > 0 ? `waited ${duration(waited)} for rank ${last}` : "";
}

// A moment of a lane without a call: the phases around it, or a plain word.
export function laneTip(model, rank, moment) {
  const phases = (model.marksOf.get(rank) ?? []).filter((mark) => mark.begin <= moment && mark.end >= moment);
  const life = model.lives[rank] ?? {};
  if (life.end !== undefined && moment >= life.end) return [element("b", {}, `rank ${rank}: ${life.text}`)];
  const name = phases.length ? phases.map((mark) => mark.name).join(" › ") : "between calls";
  const lines = [element("b", {}, name), element("p", {}, `rank ${rank} · at ${duration(Math.round(moment))}`)];
  if (phases.length) lines.push(element("p", {}, duration(phases.at(-1).end - phases.at(-1).begin)));
  return lines;
}

export function wordsTip(rank, head, text) {
  return [element("b", {}, `rank ${rank} · ${head}`), element("p", {}, clip(text, 400))];
}
