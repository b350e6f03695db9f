// What is under the pointer, in words.

import { element, paragraph } from "lab/dom";
import { bytes, clip, duration, nameRanks } from "lab/words";

// A call: the operation first, then the line of the script, then how long and for whom it waited.
export function callTip(call, { of, spread }) {
  const { step, bucket, open } = call;
  return [
    element("b", {}, step?.title ?? call.op),
    paragraph([`rank ${call.rank}`, call.at, call.phase].filter(Boolean).join(" · ")),
    bucket < 0 ? "" : paragraph(`DDP bucket ${bucket}: ${call.params}`),
    paragraph(`${open ? "never done" : duration(call.dur)}, ${bytes(call.bytes)}`, open ? "bad" : ""),
    paragraph(step && waitedFor(call, step)),
    paragraph(of.length > 1 && sharedBy(of, spread.get(call))),
    paragraph(call.error, "bad"),
  ];
}

function waitedFor({ rank, wait }, { missing, last, calls }) {
  if (missing.length) return `waited for ${nameRanks(missing)}, which never entered`;
  if (last === rank) return calls.some((one) => one.wait > 0) ? "the others waited for it" : "";
  return wait > 0 ? `waited ${duration(wait)} for rank ${last}` : "";
}

// The other ranks of the lane, of which the call's own is the first.
function sharedBy(of, spread) {
  const between = spread ? `, between ${spread.map((at) => duration(Math.round(at))).join(" and ")}` : "";
  return `so did ${nameRanks(of.slice(1))}${between}`;
}

// A moment of a lane without a call: the phases around it, or a plain word.
export function laneTip({ rank, of, life, marks }, moment) {
  if (moment >= life.end) return [element("b", {}, `${nameRanks(of)}: ${life.text}`)];
  const phases = marks.filter((mark) => mark.begin <= moment && mark.end >= moment);
  return [
    element("b", {}, phases.map((mark) => mark.name).join(" › ") || "between calls"),
    paragraph(`rank ${rank} · at ${duration(Math.round(moment))}`),
    phases.length ? paragraph(duration(phases.at(-1).dur)) : "",
  ];
}

export function wordsTip(rank, head, text) {
  return [element("b", {}, `rank ${rank} · ${head}`), paragraph(clip(text, 400))];
}
