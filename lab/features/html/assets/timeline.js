// The timeline: zoom and pan; `painter.js` and `draw.js` paint it, `pointer.js` tells what is under the pointer.

import { scaleLinear, select, zoom, zoomIdentity } from "lab/d3";
import { barsOf, layLanes, placeLanes } from "lab/lanes";
import { makePainter } from "lab/painter";
import { startPointer } from "lab/pointer";
import { startSelection } from "lab/selection";

const NARROWEST_US = 5;

// `root` holds a list of lanes and a canvas. `more`, each of which a page may do without: `logs`, the `range` that is
// chosen, pieces of the critical `path`, `span`: what the whole timeline shows, `zoomed`: is told of every zoom.
export function startTimeline(root, model, choice, more = {}) {
  const canvas = root.querySelector("canvas");
  const names = root.querySelector(".lanes");
  const open = new Set(); // of lanes that several ranks share, the first of these
  const [start, finish] = more.span ?? model.span;
  const margin = (finish - start) * 0.011;
  const whole = [start - margin, finish + margin];
  const base = scaleLinear().domain(whole);
  const view = {
    model,
    lanes: [],
    laneOf: new Map(), // by rank: its own, or that which it shares
    height: 0,
    width: 0,
    scale: base,
    step: null,
    chosen: new Set(), // its bars
    hovered: null,
    path: more.path ?? [],
    range: more.range ?? null,
    dragged: false, // whether a range was chosen by the drag that is about to end
    armed: false, // whether the pointer moved here since the page was scrolled
    selecting: false, // whether a drag chooses a range
  };
  const painter = makePainter(canvas, view);
  const change = (what, ...given) => select(canvas).call(zoomed[what], ...given);

  function resize() {
    const width = canvas.clientWidth;
    if (!width || width === view.width) return;
    view.width = width;
    base.range([0, width]);
    fit();
    showAll();
  }

  function fit() {
    painter.resize();
    const corner = [view.width, view.height];
    zoomed.translateExtent([[0, 0], corner]);
  }

  // Anew where a lane of several ranks is opened or closed.
  function lay() {
    Object.assign(view, layLanes(model, open));
    for (const lane of view.lanes) for (const rank of lane.of) view.laneOf.set(rank, lane);
    view.chosen = barsOf(view.step, view.lanes);
    canvas.style.height = `${view.height}px`;
    placeLanes(names, view.lanes, view.height);
  }

  function toggle(event) {
    const first = Number(event.target.closest("button")?.value ?? Number.NaN);
    if (Number.isNaN(first)) return;
    if (!open.delete(first)) open.add(first);
    lay();
    fit();
    painter.redraw();
  }

  const zoomed = zoom()
    .scaleExtent([1, Math.max(2, (whole[1] - whole[0]) / NARROWEST_US)])
    .filter(wanted)
    .on("zoom", (event) => {
      view.scale = event.transform.rescaleX(base);
      hideTip();
      painter.redraw();
      more.zoomed?.(event.transform);
    });

  // The wheel zooms once the pointer has moved on the timeline; while the page scrolls past below a resting pointer,
  // it goes on scrolling. So it does when there is nothing more to zoom out of.
  function wanted(event) {
    if (event.type !== "wheel") return !event.button && !view.selecting && !event.shiftKey;
    if (event.ctrlKey) return true;
    const out = event.deltaY > 0 && view.scale.domain()[0] <= whole[0] && view.scale.domain()[1] >= whole[1];
    return view.armed && !out && Math.abs(event.deltaY) >= Math.abs(event.deltaX);
  }

  function pan(share) {
    const [begin, end] = view.scale.domain();
    change("translateBy", share * (base(begin) - base(end)), 0);
  }

  function showAll() {
    change("transform", zoomIdentity);
  }

  function showSpan(begin, end) {
    const left = base(Math.max(whole[0], begin));
    const right = base(Math.min(whole[1], Math.max(end, begin + NARROWEST_US)));
    change("transform", zoomIdentity.scale(view.width / (right - left)).translate(-left, 0));
  }

  // Before the first call there may be seconds of imports and building of models: then the view begins with the calls.
  function showBeginning() {
    const first = Math.min(...model.ranks.map(({ calls }) => calls[0]?.begin ?? finish));
    if (first - start > 0.4 * (finish - start) && first < finish) showSpan(first - (finish - first) * 0.08, whole[1]);
  }

  function spanOf({ begin, calls }) {
    return [begin, Math.max(...calls.map((call) => call.end))];
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

  function panByWheel(event) {
    if (Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    pan(event.deltaX / view.width);
  }

  canvas.addEventListener("wheel", panByWheel, { passive: false });
  addEventListener("scroll", () => {
    view.armed = false;
  });
  const hideTip = startPointer(canvas, view, choice, more.logs ?? {}, { redraw: painter.redraw, showStep });
  if (more.range) startSelection(canvas, view, more.range, painter.redraw);
  names.addEventListener("click", toggle);
  lay();
  select(canvas).call(zoomed).on("dblclick.zoom", null);
  resize();
  new ResizeObserver(resize).observe(canvas);
  choice.onChange((step, origin) => {
    view.step = step;
    view.chosen = barsOf(step, view.lanes);
    if (step && origin !== "timeline" && origin !== "filter") revealStep(step);
    painter.redraw();
  });
  painter.restyle();
  if (!more.span) showBeginning();
  return {
    restyle: painter.restyle,
    zoomBy: (factor) => change("scaleBy", factor),
    zoomTo: (transform) => change("transform", transform),
    showAll,
    pan,
    hideTip,
    shown: () => view.scale.domain(),
    showStep: () => showStep(view.step),
    showPath(pieces) {
      view.path = pieces;
      painter.redraw();
    },
    select(on) {
      view.selecting = on;
      canvas.classList.toggle("selecting", on);
    },
  };
}
