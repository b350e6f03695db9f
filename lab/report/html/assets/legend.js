// Which colour and which sign means what; only what this run has.

import { operationColour, phaseColour } from "lab/colours";
import { element } from "lab/dom";

export function fillLegend(list, model) {
  const ops = [...new Set(model.calls.op)].map((index) => model.word(index)).sort();
  const phases = [...new Set(model.marks.name)].map((index) => model.word(index));
  const items = ops.map((op) => swatch(op, operationColour(op), ""));
  if (model.callCount) items.push(swatch("waiting for others", "", "waiting"));
  items.push(...phases.map((phase) => swatch(phase, phaseColour(phase), "phase")));
  if (model.logs.t.length) items.push(element("li", {}, "▏ log line"));
  if (model.notes.length) items.push(element("li", {}, "◆ note"));
  if (Object.values(model.lives).some((life) => life.bad)) items.push(element("li", {}, "✘ ended badly"));
  if (model.faults.length) items.push(swatch("fault", "var(--bad)", "phase"));
  list.replaceChildren(...items);
}

function swatch(name, colour, kind) {
  const style = colour ? { "--op": colour } : {};
  return element("li", {}, element("i", { class: `swatch ${kind}`, style }), name);
}
