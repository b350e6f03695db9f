// The canvas of the timeline: its size in pixels, its colours, and when it is painted.

import { drawTimeline } from "lab/draw";

const TALLEST_PX = 16000;

// What is shown (`view`) can be read from the canvas too: `data-domain` in microseconds, `data-step`.
export function makePainter(canvas, view) {
  const context = canvas.getContext("2d");
  let waiting = 0;

  function paint() {
    waiting = 0;
    if (!view.width) return;
    const ratio = pixelRatio();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawTimeline(context, view);
    canvas.dataset.domain = view.scale.domain().map(Math.round).join(" ");
    canvas.dataset.step = view.step?.number ?? 0;
  }

  // Pixels of the canvas for one of the page; browsers refuse very tall canvases, which hundreds of ranks would make.
  function pixelRatio() {
    return Math.min(devicePixelRatio || 1, TALLEST_PX / view.height);
  }

  return {
    redraw() {
      if (!waiting) waiting = requestAnimationFrame(paint);
    },
    restyle() {
      view.colours = themeColours(view.model.colours);
      view.hatch = context.createPattern(hatching(view.colours.hatch), "repeat");
      paint(); // at once: before printing there is no further frame
    },
    resize() {
      canvas.width = Math.round(view.width * pixelRatio());
      canvas.height = Math.round(view.height * pixelRatio());
    },
  };
}

// The theme's colours as a canvas needs them, those of operations under `ops`.
function themeColours(operations) {
  const probe = document.body.appendChild(document.createElement("span"));
  const colour = (css) => {
    probe.style.color = css;
    return getComputedStyle(probe).color;
  };
  const names = ["ink", "soft", "line", "lane", "lane-live", "hatch", "bad", "focus", "path", "page", "good"];
  const colours = Object.fromEntries(names.map((name) => [name, colour(`var(--${name})`)]));
  const ops = Object.fromEntries(Object.entries(operations).map(([op, css]) => [op, colour(css)]));
  probe.remove();
  return { ...colours, ops };
}

function hatching(colour) {
  const tile = new OffscreenCanvas(6, 6);
  const brush = tile.getContext("2d");
  brush.strokeStyle = colour;
  brush.lineWidth = 2.2;
  brush.stroke(new Path2D("M-7 7L1 -1M-1 7L7 -1M5 7L13 -1"));
  return tile;
}
