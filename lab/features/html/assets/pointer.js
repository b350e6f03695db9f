// The pointer on the timeline: what is under it is told in words, a click chooses.

import { callAt, nearest } from "lab/spans";
import { callTip, laneTip, wordsTip } from "lab/tip";

// `actions`: `redraw` the timeline, `showStep` zooms to one. Returns what hides the words.
export function startPointer(canvas, view, choice, logs, actions) {
  const tip = document.getElementById("tip");

  // The lane under the pointer with the moment and the call there; of a lane's lower edge, the note or the log line.
  function under({ offsetX: x, offsetY: y }) {
    const lane = view.lanes.find(({ top, height, head }) => !head && y >= top && y < top + height);
    if (!lane) return {};
    const moment = view.scale.invert(x);
    const tolerance = Math.abs(view.scale.invert(x + 2.5) - moment);
    const row = Math.min(lane.rows - 1, Math.max(0, Math.floor((y - lane.bars) / lane.pitch)));
    const call = y < lane.ticks ? callAt(lane, row, moment, tolerance) : null;
    if (call || y < lane.ticks - 1) return { lane, moment, call };
    const far = ({ begin }) => Math.abs(begin - moment);
    const near = (one) => far(one) <= tolerance * 1.6;
    return { lane, moment, note: lane.notes.find(near), line: nearest(lane.logs.filter(near), far) };
  }

  function describe({ lane, moment, call, note, line }) {
    if (call) return callTip(call, lane);
    if (note) return wordsTip(note.rank, "note", note.text);
    if (line) return wordsTip(line.rank, "printed", logs.text(line));
    return laneTip(lane, moment);
  }

  function showTip(found, { clientX, clientY }) {
    tip.replaceChildren(...describe(found));
    tip.hidden = false;
    const left = Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8);
    const fits = clientY + 18 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${fits ? clientY + 18 : Math.max(4, clientY - tip.offsetHeight - 10)}px`;
  }

  function hideTip() {
    tip.hidden = true;
    view.hovered = null;
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
    if (view.dragged) {
      view.dragged = false; // the end of choosing a range
      return;
    }
    const found = under(event);
    if (found.call) {
      choice.set(found.call.step?.number ?? 0, "timeline");
      showTip(found, event);
    } else if (found.line) logs.show(found.line);
  });
  canvas.addEventListener("dblclick", (event) => actions.showStep(under(event).call?.step));
  return hideTip;
}
