// Which colour and which sign means what; only what this run has.

import { phaseColour } from "lab/colours";
import { element } from "lab/dom";

export function fillLegend(list, model) {
  const phases = [...new Set(model.marks.name)].map((index) => model.word(index));
  const items = Object.entries(model.colours).map(([op, colour]) => swatch(op, colour, ""));
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
