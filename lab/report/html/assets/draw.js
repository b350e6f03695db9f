// Draws the timeline on a canvas. What is narrower than a pixel is merged with its neighbour.

import { phaseColour } from "lab/colours";
import { AXIS, rowTop } from "lab/lanes";
import { FAILED, readyOf } from "lab/model";
import { visibleCalls } from "lab/spans";
import { bytes, moment } from "lab/words";

const FONT = "system-ui, sans-serif";
const MOST_LINKS = 250;

export function drawTimeline(context, view) {
  const { width, height, colours } = view;
  context.clearRect(0, 0, width, height);
  drawAxis(context, view);
  for (const lane of view.lanes) {
    drawLife(context, view, lane);
    drawPhases(context, view, lane);
  }
  drawFaults(context, view);
  const seen = new Set();
  for (const lane of view.lanes) drawCalls(context, view, lane, seen);
  if (seen.size <= MOST_LINKS) for (const step of seen) drawLink(context, view, step, false);
  drawTicks(context, view);
  for (const lane of view.lanes) drawEnd(context, view, lane);
  if (view.step) drawLink(context, view, view.step, true);
  context.strokeStyle = colours.line;
  context.strokeRect(0, AXIS - 0.5, width, 0);
}

function drawAxis(context, view) {
  const { scale, width, height, colours } = view;
  const ticks = scale.ticks(Math.max(2, Math.floor(width / 110)));
  const distance = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  context.font = `11.5px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.lineWidth = 1;
  for (const tick of ticks) {
    const x = Math.round(scale(tick)) + 0.5;
    context.strokeStyle = colours.line;
    path(context, [x, AXIS], [x, height]).stroke();
    context.fillStyle = colours.soft;
    const text = moment(tick, distance);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x, half + 4), width - half - 4), AXIS / 2);
  }
}

function drawLife(context, view, lane) {
  const { width, colours, model } = view;
  context.fillStyle = colours.lane;
  context.fillRect(0, lane.top, width, lane.height);
  const life = model.lives[lane.rank] ?? {};
  const [from, to] = inView(view, life.begin ?? 0, life.end);
  context.fillStyle = colours["lane-live"];
  if (to > from) context.fillRect(from, lane.top, to - from, lane.height);
}

function drawPhases(context, view, lane) {
  const [first, last] = view.scale.domain();
  let drawn = Number.NEGATIVE_INFINITY;
  context.font = `10.5px ${FONT}`;
  context.textAlign = "left";
  for (const mark of view.model.marksOf.get(lane.rank) ?? []) {
    if (mark.end < first || mark.begin > last) continue;
    const [from, to] = inView(view, mark.begin, mark.end);
    if (to - from < 1 && to < drawn) continue;
    drawn = from + 1;
    tint(context, phaseColour(mark.name), from, lane, Math.max(1, to - from));
    if (lane.bars - lane.top > 8 && context.measureText(mark.name).width < to - from - 8) {
      context.fillStyle = view.colours.soft;
      context.fillText(mark.name, from + 4, lane.top + 7.5);
    }
  }
}

function drawFaults(context, view) {
  const { height, colours, model, lanes } = view;
  context.font = `11px ${FONT}`;
  context.textAlign = "left";
  for (const fault of model.faults) {
    const [from, to] = inView(view, fault.t, fault.until);
    if (to <= from) continue;
    const touched = lanes.filter((lane) => !fault.ranks || fault.ranks.includes(lane.rank));
    const areas = fault.ranks ? touched : [{ top: AXIS, height: height - AXIS }];
    for (const area of areas) {
      tint(context, colours.bad, from, area, to - from);
      context.fillRect(from, area.top, 1.5, area.height);
    }
    context.fillText(fault.text, from + 5, (areas[0]?.top ?? AXIS) + 8);
  }
}

function drawCalls(context, view, lane, seen) {
  const { scale, model, width, colours } = view;
  const [begin, end] = scale.domain();
  const [from, to] = visibleCalls(model, view.latest, lane.rank, begin, end);
  const covered = new Float64Array(lane.rows).fill(Number.NEGATIVE_INFINITY);
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (let i = from; i < to; i += 1) {
    const row = model.calls.row[i];
    const left = scale(model.begin[i]);
    const right = scale(model.end[i]);
    if (seen.size <= MOST_LINKS) seen.add(model.calls.step[i]);
    const special = model.calls.flags[i] & FAILED || model.calls.dur[i] < 0 || model.calls.step[i] === view.step;
    if (!special && right <= covered[row]) continue;
    const x = Math.max(-2, left);
    const w = Math.max(1, Math.min(width + 2, right) - x - (right - left > 4 ? 0.5 : 0));
    covered[row] = Math.max(covered[row], x + w);
    drawBar(context, view, i, x, rowTop(lane, row), w, lane.bar, colours);
  }
}

function drawBar(context, view, call, x, y, w, h, colours) {
  const { model, scale } = view;
  const { calls } = model;
  const op = model.word(calls.op[call]);
  const open = calls.dur[call] < 0;
  const failed = Boolean(calls.flags[call] & FAILED);
  const colour = model.colours[op];
  context.fillStyle = colour;
  context.globalAlpha = open ? 0.55 : 1;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
  const waitedUntil = scale(calls.wait[call] < 0 ? model.end[call] : model.begin[call] + calls.wait[call]);
  if (waitedUntil - x > 2) {
    context.fillStyle = view.hatch;
    context.fillRect(x, y, Math.min(w, waitedUntil - x), h);
  }
  if (open || failed) {
    context.strokeStyle = colours.bad;
    context.lineWidth = 2;
    context.setLineDash(open ? [4, 3] : []);
    context.strokeRect(x + 1, y + 1, Math.max(0.5, w - 2), h - 2);
    context.setLineDash([]);
  }
  if (calls.step[call] === view.step || call === view.hovered) {
    context.strokeStyle = colours.ink;
    context.lineWidth = calls.step[call] === view.step ? 2 : 1;
    context.strokeRect(x - 1, y - 1, w + 2, h + 2);
  }
  if (w > 30 && h > 12) drawLabel(context, view, call, op, x, y, w, h, colour, waitedUntil);
}

// The label stands after the hatched part if there is room, so that it can be read.
function drawLabel(context, view, call, op, x, y, w, h, colour, waitedUntil) {
  const bucket = view.model.calls.bucket[call];
  const name = bucket >= 0 ? `${op} bucket ${bucket}` : op;
  context.font = `600 11px ${FONT}`;
  const after = Math.max(x, waitedUntil);
  const start = x + w - after > 44 ? after : x;
  const room = x + w - start - 8;
  const size = view.model.calls.bytes[call];
  const texts = size ? [`${name}  ${bytes(size)}`, name] : [name];
  if (bucket >= 0) texts.push(`bucket ${bucket}`, `b${bucket}`);
  const text = texts.find((one) => context.measureText(one).width <= room);
  if (!text) return;
  if (start < waitedUntil - 2) {
    context.fillStyle = colour;
    context.fillRect(start + 2, y + 1, context.measureText(text).width + 5, h - 2);
  }
  context.fillStyle = isLight(colour) ? "#17191c" : "#ffffff";
  context.fillText(text, start + 4, y + h / 2 + 0.5);
}

function isLight(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 150;
}

// Of a collective: a line at the moment at which the last rank entered, with a dot there. Of a message: an arrow.
function drawLink(context, view, step, chosen) {
  if (!step) return;
  const { model, scale, laneOf, colours } = view;
  const ends = [...model.callsOf(step)].map((call) => ({ call, lane: laneOf.get(model.rankOf[call]) }));
  if (ends.length < 2 || ends.some(({ lane }) => !lane)) return;
  context.strokeStyle = chosen ? colours.ink : colours.soft;
  context.fillStyle = context.strokeStyle;
  context.globalAlpha = chosen ? 1 : 0.55;
  context.lineWidth = chosen ? 1.5 : 1;
  const middle = ({ call, lane }) => rowTop(lane, model.calls.row[call]) + lane.bar / 2;
  if (model.steps.seq[step - 1] < 0) drawArrow(context, view, step, ends, middle);
  else {
    const ready = readyOf(model, step);
    if (ready !== null) {
      const x = scale(ready);
      const ys = ends.map(middle);
      const last = ends.find(({ call }) => model.rankOf[call] === model.steps.last[step - 1]);
      context.setLineDash(chosen ? [] : [2, 3]);
      path(context, [x, Math.min(...ys)], [x, Math.max(...ys)]).stroke();
      context.setLineDash([]);
      context.beginPath();
      context.arc(x, middle(last), chosen ? 4 : 2.5, 0, 2 * Math.PI);
      context.fill();
    }
  }
  context.globalAlpha = 1;
}

function drawArrow(context, view, step, ends, middle) {
  const { model, scale } = view;
  const sender = ends.find(({ call }) => model.rankOf[call] === model.steps.from[step - 1]);
  const receiver = ends.find((one) => one !== sender);
  if (!sender || !receiver) return;
  const [x1, y1] = [scale(model.begin[sender.call]), middle(sender)];
  const [x2, y2] = [scale(model.end[receiver.call]), middle(receiver)];
  const angle = Math.atan2(y2 - y1, x2 - x1);
  path(context, [x1, y1], [x2, y2]).stroke();
  const side = (turn) => [x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn)];
  path(context, [x2, y2], side(-0.4), side(0.4)).fill();
}

function drawTicks(context, view) {
  const { model, scale, laneOf, colours } = view;
  const drawn = new Map();
  model.logs.t.forEach((t, i) => {
    const x = Math.round(scale(t));
    const lane = laneOf.get(model.logs.rank[i]);
    const bad = model.logs.stream[i] === 2;
    if (!lane || !model.logs.stream[i] || x < 0 || x > view.width || (drawn.get(lane) === x && !bad)) return;
    drawn.set(lane, x);
    context.fillStyle = bad ? colours.bad : colours.soft;
    context.fillRect(x, lane.ticks + 1, 1, 6);
  });
  context.fillStyle = colours.focus;
  for (const note of model.notes) {
    const lane = laneOf.get(note.rank);
    const x = scale(note.t);
    if (!lane || x < -4 || x > view.width + 4) continue;
    const y = lane.ticks + 4;
    path(context, [x, y - 4], [x + 4, y], [x, y + 4], [x - 4, y]).fill();
  }
}

function drawEnd(context, view, lane) {
  const life = view.model.lives[lane.rank];
  if (!life?.bad) return;
  const x = view.scale(life.end);
  if (x < 0 || x > view.width) return;
  context.fillStyle = view.colours.bad;
  context.fillRect(x - 1, lane.top, 2, lane.height);
  context.font = `700 15px ${FONT}`;
  context.textAlign = x > view.width - 20 ? "right" : "left";
  context.fillText("✘", x + (x > view.width - 20 ? -4 : 4), lane.top + lane.height / 2);
}

function path(context, ...points) {
  context.beginPath();
  for (const point of points) context.lineTo(...point);
  return context;
}

// Where a stretch of time begins and ends in pixels, as far as it is in view; one without an end lasts as the run does.
function inView({ scale, width, model }, begin, end) {
  return [Math.max(0, scale(begin)), Math.min(width, scale(end ?? model.span[1]))];
}

function tint(context, colour, x, { top, height }, width) {
  context.fillStyle = colour;
  context.globalAlpha = 0.14;
  context.fillRect(x, top, width, height);
  context.globalAlpha = 1;
}
