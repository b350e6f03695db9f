// Which colour and which sign means what; only what this run has.

import { phaseColour } from "lab/colours";
import { element } from "lab/dom";

export function fillLegend(list, model) {
  const phases = new Set(model.marks.map((mark) => mark.name));
  const items = Object.entries(model.colours).map(([op, colour]) => swatch(op, colour));
  if (model.calls.length) items.push(swatch("waiting for others", "", "waiting"));
  for (const phase of phases) items.push(swatch(phase, phaseColour(phase), "phase"));
  if (model.logs.length) items.push(element("li", {}, "▏ log line"));
  if (model.notes.length) items.push(element("li", {}, "◆ note"));
  if (model.ranks.some(({ life }) => life.bad)) items.push(element("li", {}, "✘ ended badly"));
  if (model.faults.length) items.push(swatch("fault", "var(--bad)", "phase"));
  list.replaceChildren(...items);
}

function swatch(name, colour, kind = "") {
  return element("li", {}, element("i", { class: `swatch ${kind}`, style: colour && `--op: ${colour}` }), name);
}
