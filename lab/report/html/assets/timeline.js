// The timeline: zoom, pan, pointer and keys; `draw.js` paints it.

import { themeColours } from "lab/colours";
import { scaleLinear, select, zoom, zoomIdentity } from "lab/d3";
import { element } from "lab/dom";
import { drawTimeline } from "lab/draw";
import { AXIS, laneAt, layLanes } from "lab/layout";
import { callAt, latestEnds } from "lab/spans";
import { callTip, laneTip, wordsTip } from "lab/tip";

const NARROWEST_US = 5;

export function startTimeline(model, choice, logs) {
  const canvas = document.getElementById("canvas");
  const tip = document.getElementById("tip");
  const context = canvas.getContext("2d");
  const { lanes, height } = layLanes(model);
  const latest = latestEnds(model);
  const [start, finish] = model.span;
  const margin = (finish - start) * 0.011;
  const whole = [start - margin, finish + margin];
  const base = scaleLinear().domain(whole);
  const view = {
    model,
    lanes,
    height,
    latest,
    width: 0,
    scale: base,
    step: 0,
    hovered: -1,
    colours: null,
    hatch: null,
  };
  let waiting = 0;
  let armed = false;

  // ------------------------------------------------------------------------------------------------------ drawing
  function redraw() {
    if (!waiting) waiting = requestAnimationFrame(paint);
  }

  function paint() {
    waiting = 0;
    if (!view.width) return;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawTimeline(context, view);
    canvas.dataset.domain = view.scale.domain().map(Math.round).join(" ");
    canvas.dataset.step = view.step;
  }

  function restyle() {
    view.colours = themeColours();
    view.hatch = hatchOf(view.colours.hatch);
    redraw();
  }

  function hatchOf(colour) {
    const tile = new OffscreenCanvas(6, 6);
    const brush = tile.getContext("2d");
    brush.strokeStyle = colour;
    brush.lineWidth = 2.2;
    for (const shift of [-6, 0, 6]) {
      brush.beginPath();
      brush.moveTo(shift - 1, 7);
      brush.lineTo(shift + 7, -1);
      brush.stroke();
    }
    return context.createPattern(tile, "repeat");
  }

  function resize() {
    const width = canvas.clientWidth;
    if (!width || width === view.width) return;
    const ratio = devicePixelRatio || 1;
    view.width = width;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    base.range([0, width]);
    zoomed
      .extent([
        [0, 0],
        [width, height],
      ])
      .translateExtent([
        [0, 0],
        [width, height],
      ]);
    select(canvas).call(zoomed.transform, zoomIdentity);
  }

  // --------------------------------------------------------------------------------------------------- zoom and pan
  const zoomed = zoom()
    .scaleExtent([1, Math.max(2, (whole[1] - whole[0]) / NARROWEST_US)])
    .filter(wanted)
    .on("zoom", (event) => {
      view.scale = event.transform.rescaleX(base);
      hideTip();
      redraw();
    });

  // The wheel zooms once the pointer has moved on the timeline; while the page scrolls past below a resting pointer,
  // it goes on scrolling. So it does when there is nothing more to zoom out of.
  function wanted(event) {
    if (event.type !== "wheel") return !event.button;
    if (event.ctrlKey) return true;
    const out = event.deltaY > 0 && view.scale.domain()[0] <= whole[0] && view.scale.domain()[1] >= whole[1];
    return armed && !out && Math.abs(event.deltaY) >= Math.abs(event.deltaX);
  }

  function pan(share) {
    const [begin, end] = view.scale.domain();
    const one = base(end) - base(begin);
    select(canvas).call(zoomed.translateBy, -share * one, 0);
  }

  function zoomBy(factor) {
    select(canvas).call(zoomed.scaleBy, factor);
  }

  function showAll() {
    select(canvas).call(zoomed.transform, zoomIdentity);
  }

  function showSpan(begin, end) {
    const left = Math.max(whole[0], begin);
    const right = Math.min(whole[1], Math.max(end, begin + NARROWEST_US));
    const k = view.width / (base(right) - base(left));
    select(canvas).call(zoomed.transform, zoomIdentity.scale(k).translate(-base(left), 0));
  }

  // Before the first call there may be seconds of imports and building of models: then the view begins with the calls.
  function showBeginning() {
    let first = finish;
    for (const { from, to } of model.slices.values()) if (to > from) first = Math.min(first, model.begin[from]);
    if (first - start > 0.4 * (finish - start) && first < finish) showSpan(first - (finish - first) * 0.08, whole[1]);
  }

  function spanOf(step) {
    const calls = model.callsOf(step);
    let begin = Number.POSITIVE_INFINITY;
    let end = Number.NEGATIVE_INFINITY;
    for (const call of calls) {
      begin = Math.min(begin, model.begin[call]);
      end = Math.max(end, model.end[call]);
    }
    return [begin, end];
  }

  function showStep(step) {
    if (!step) return;
    const [begin, end] = spanOf(step);
    const around = Math.max(end - begin, 20) * 0.75;
    showSpan(begin - around, end + around);
  }

  // A step that is chosen elsewhere comes into view, at the present zoom.
  function revealStep(step) {
    const [begin, end] = spanOf(step);
    const [first, last] = view.scale.domain();
    if (begin >= first && begin <= last) return;
    const half = (last - first) / 2;
    const middle = (begin + Math.min(end, begin + half)) / 2;
    showSpan(middle - half, middle + half);
  }

  canvas.addEventListener(
    "wheel",
    (event) => {
      if (Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      pan(event.deltaX / view.width);
    },
    { passive: false },
  );
  addEventListener(
    "scroll",
    () => {
      armed = false;
    },
    { passive: true },
  );

  // -------------------------------------------------------------------------------------------------------- pointer
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

  function showTip(found) {
    tip.replaceChildren(...describe(found));
    tip.hidden = false;
    const room = canvas.parentElement.clientWidth;
    const left = canvas.offsetLeft + found.x + 14;
    tip.style.left = `${Math.max(4, Math.min(left, room - tip.offsetWidth - 8))}px`;
    const below = found.y + 18;
    const fits = below + tip.offsetHeight < canvas.parentElement.clientHeight + canvas.parentElement.scrollTop;
    tip.style.top = `${fits ? below : Math.max(4, found.y - tip.offsetHeight - 10)}px`;
  }

  function hideTip() {
    tip.hidden = true;
    view.hovered = -1;
  }

  canvas.addEventListener("pointermove", (event) => {
    armed = true;
    if (event.buttons) return;
    const found = under(event);
    if (found.call !== view.hovered) redraw();
    view.hovered = found.call;
    if (found.lane) showTip(found);
    else hideTip();
  });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    redraw();
  });
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (!found.lane) return;
    if (found.call >= 0) {
      choice.set(model.calls.step[found.call], "timeline");
      showTip(found);
      return;
    }
    const line = found.y >= found.lane.ticks - 1 ? nearest(model.logs, found.lane.rank, found) : -1;
    if (line >= 0) logs.show(line);
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = under(event);
    if (found.call >= 0) showStep(model.calls.step[found.call]);
  });

  // ----------------------------------------------------------------------------------------------------- beginning
  canvas.style.height = `${height}px`;
  fillLanes(document.getElementById("lanes"), model, lanes, height);
  select(canvas).call(zoomed).on("dblclick.zoom", null);
  resize();
  new ResizeObserver(resize).observe(canvas);
  choice.onChange((number, origin) => {
    view.step = number;
    if (number && origin !== "timeline") revealStep(number);
    redraw();
  });
  restyle();
  showBeginning();
  return { restyle, zoomBy, showAll, pan, hideTip, showStep: () => showStep(choice.number) };
}

function fillLanes(list, model, lanes, height) {
  list.style.height = `${height}px`;
  const nodes = new Map(model.ranks.map(({ rank, node }) => [rank, node]));
  list.replaceChildren(
    ...lanes.map(({ rank, top, height: tall }) =>
      element(
        "li",
        { class: `rank-${rank}`, "data-rank": rank, style: { top: `${top}px`, height: `${tall}px` } },
        element("span", {}, element("span", { class: "word" }, "rank "), String(rank)),
        element("small", {}, nodes.get(rank) ?? ""),
      ),
    ),
  );
  list.style.setProperty("--axis", `${AXIS}px`);
}
