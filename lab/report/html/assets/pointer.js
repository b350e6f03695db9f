// The pointer on the timeline: what is under it is told in words, a click chooses.

import { laneAt } from "lab/lanes";
import { callAt } from "lab/spans";
import { callTip, laneTip, wordsTip } from "lab/tip";

// `actions`: `redraw` the timeline, `showStep` zooms to one. Returns what hides the words.
export function startPointer(canvas, view, choice, logs, actions) {
  const { model, lanes, latest } = view;
  const tip = document.getElementById("tip");

  function under(event) {
    const area = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const lane = laneAt(lanes, y);
    if (!lane) return { x, y, call: -1, lane };
    const moment = view.scale.invert(x);
    const tolerance = Math.abs(view.scale.invert(x + 2.5) - moment);
    const row = Math.min(lane.rows - 1, Math.max(0, Math.floor((y - lane.bars) / lane.pitch)));
    const call = y < lane.ticks ? callAt(model, latest, lane.rank, row, moment, tolerance) : -1;
    return { x, y, lane, moment, tolerance: tolerance * 1.6, call };
  }

  function nearest(list, rank, { moment, tolerance }) {
    let best = -1;
    list.t.forEach((t, i) => {
      const off = Math.abs(t - moment);
      if (list.rank[i] === rank && off <= tolerance && (best < 0 || off < Math.abs(list.t[best] - moment))) best = i;
    });
    return best;
  }

  function describe(found) {
    if (found.call >= 0) return callTip(model, found.call);
    const rank = found.lane.rank;
    if (found.y >= found.lane.ticks - 1) {
      const note = model.notes.find((one) => one.rank === rank && Math.abs(one.t - found.moment) <= found.tolerance);
      if (note) return wordsTip(rank, "note", note.text);
      const line = nearest(model.logs, rank, found);
      if (line >= 0) return wordsTip(rank, "printed", logs.text(line));
    }
    return laneTip(model, rank, found.moment);
  }

  function showTip(found, event) {
    tip.replaceChildren(...describe(found));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const fits = event.clientY + 18 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${fits ? event.clientY + 18 : Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  }

  function hideTip() {
    tip.hidden = true;
    view.hovered = -1;
  }

  canvas.addEventListener("pointermove", (event) => {
    view.armed = true;
    if (event.buttons) return;
    const found = under(event);
    if (found.call !== view.hovered) actions.redraw();
    view.hovered = found.call;
    if (found.lane) showTip(found, event);
    else hideTip();
  });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    actions.redraw();
  });
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (!found.lane) return;
    if (found.call >= 0) {
      choice.set(model.calls.step[found.call], "timeline");
      showTip(found, event);
      return;
    }
    const line = found.y >= found.lane.ticks - 1 ? nearest(model.logs, found.lane.rank, found) : -1;
    if (line >= 0) logs.show(line);
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = under(event);
    if (found.call >= 0) actions.showStep(model.calls.step[found.call]);
  });
  return hideTip;
}
