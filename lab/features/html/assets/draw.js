// Draws the timeline on a canvas. What is narrower than a pixel is merged with its neighbour.

import { drawPath } from "lab/drawpath";
import { AXIS } from "lab/lanes";
import { visibleCalls } from "lab/spans";
import { bytes, moment } from "lab/words";

const FONT = "system-ui, sans-serif";
const MOST_LINKS = 250;

export function drawTimeline(context, view) {
  const { width, height, colours, lanes } = view;
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  drawAxis(context, view);
  for (const lane of lanes) {
    drawLife(context, view, lane);
    drawPhases(context, view, lane);
  }
  drawFaults(context, view);
  const seen = new Set();
  for (const lane of lanes) drawCalls(context, view, lane, seen);
  if (seen.size <= MOST_LINKS) for (const step of seen) drawLink(context, view, step, false);
  for (const lane of lanes) {
    drawTicks(context, view, lane);
    drawEnd(context, view, lane);
  }
  drawPath(context, view);
  if (view.step) drawLink(context, view, view.step, true);
  drawRange(context, view);
  context.strokeStyle = colours.line;
  context.strokeRect(0, AXIS - 0.5, width, 0);
}

function drawAxis(context, { scale, width, height, colours }) {
  const ticks = scale.ticks(Math.max(2, Math.floor(width / 110)));
  const distance = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  context.font = `11.5px ${FONT}`;
  context.textAlign = "center";
  context.lineWidth = 1;
  context.strokeStyle = colours.line;
  context.fillStyle = colours.soft;
  for (const tick of ticks) {
    const x = Math.round(scale(tick)) + 0.5;
    path(context, [x, AXIS], [x, height]).stroke();
    const text = moment(tick, distance);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x, half + 4), width - half - 4), AXIS / 2);
  }
}

function drawLife(context, view, { life, top, height }) {
  const { width, colours } = view;
  context.fillStyle = colours.lane;
  context.fillRect(0, top, width, height);
  const [from, to] = inView(view, life.begin ?? 0, life.end);
  context.fillStyle = colours["lane-live"];
  if (to > from) context.fillRect(from, top, to - from, height);
}

function drawPhases(context, view, lane) {
  const [first, last] = view.scale.domain();
  let drawn = Number.NEGATIVE_INFINITY;
  context.font = `10.5px ${FONT}`;
  context.textAlign = "left";
  for (const mark of lane.marks) {
    if (mark.end < first || mark.begin > last) continue;
    const [from, to] = inView(view, mark.begin, mark.end);
    if (to - from < 1 && to < drawn) continue;
    drawn = from + 1;
    tint(context, view.model.phases[mark.name], from, lane, Math.max(1, to - from));
    if (lane.bars - lane.top > 8 && context.measureText(mark.name).width < to - from - 8) {
      context.fillStyle = view.colours.soft;
      context.fillText(mark.name, from + 4, lane.top + 7.5);
    }
  }
}

function drawFaults(context, view) {
  context.font = `11px ${FONT}`;
  for (const { t, until, ranks, text } of view.model.faults) {
    const [from, to] = inView(view, t, until);
    if (to <= from) continue;
    const all = [{ top: AXIS, height: view.height - AXIS }];
    const lanes = ranks ? [...new Set(ranks.map((rank) => view.laneOf.get(rank)))].filter(Boolean) : [];
    const areas = ranks ? lanes.map((lane) => areaOf(lane, ranks)) : all;
    for (const area of areas) {
      tint(context, view.colours.bad, from, area, to - from);
      context.fillRect(from, area.top, 1.5, area.height);
    }
    context.fillText(text, from + 5, (areas[0]?.top ?? AXIS) + 8);
  }
}

// A lane whose ranks are not all concerned has it at its bottom only, where the ticks are.
function areaOf({ top, height, ticks, of }, ranks) {
  return of.every((rank) => ranks.includes(rank)) ? { top, height } : { top: ticks, height: top + height - ticks };
}

function drawCalls(context, view, lane, seen) {
  const { scale, width } = view;
  const covered = new Float64Array(lane.rows).fill(Number.NEGATIVE_INFINITY);
  for (const call of visibleCalls(lane, ...scale.domain())) {
    const [left, right] = [scale(call.begin), scale(call.end)];
    if (call.step && seen.size <= MOST_LINKS) seen.add(call.step);
    const special = call.error || call.open || call.differs || view.chosen.has(call);
    if (!special && right <= covered[call.row]) continue;
    const x = Math.max(-2, left);
    const w = Math.max(1, Math.min(width + 2, right) - x - (right - left > 4 ? 0.5 : 0));
    covered[call.row] = Math.max(covered[call.row], x + w);
    drawBar(context, view, call, { x, y: call.top, w, h: lane.bar });
    if (lane.spread?.has(call)) drawSpread(context, view, call, lane);
    if (lane.off) drawOff(context, view, call, lane);
  }
}

// From when to when any of the ranks that share a lane was in the call: a line below the bar of the first of them.
function drawSpread(context, { scale, colours }, call, { spread, bar }) {
  const [from, to] = spread.get(call).map(scale);
  context.fillStyle = colours.ops[call.op];
  context.fillRect(from, call.top + bar + 0.5, Math.max(1, to - from), 2);
}

// By how much the ends of a bar may be off, where ranks are on hosts with clocks of their own.
function drawOff(context, { scale, colours }, call, { off, bar }) {
  const half = scale(call.begin + off) - scale(call.begin);
  if (half < 1) return;
  const y = call.top + bar / 2;
  context.strokeStyle = colours.ink;
  context.lineWidth = 1;
  for (const time of call.open ? [call.begin] : [call.begin, call.end]) {
    const [from, to] = [scale(time) - half, scale(time) + half];
    path(context, [from, y], [to, y]).stroke();
    for (const x of [from, to]) path(context, [x, y - 3], [x, y + 3]).stroke();
  }
}

function drawBar(context, view, call, bar) {
  const { scale, colours } = view;
  const { x, y, w, h } = bar;
  const colour = colours.ops[call.op];
  context.fillStyle = colour;
  context.globalAlpha = call.open ? 0.55 : 1;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
  const waitedUntil = scale(call.wait < 0 ? call.end : call.begin + call.wait);
  if (waitedUntil - x > 2) {
    context.fillStyle = view.hatch;
    context.fillRect(x, y, Math.min(w, waitedUntil - x), h);
  }
  if (call.open || call.error) {
    context.strokeStyle = colours.bad;
    context.lineWidth = 2;
    context.setLineDash(call.open ? [4, 3] : []);
    context.strokeRect(x + 1, y + 1, Math.max(0.5, w - 2), h - 2);
    context.setLineDash([]);
  }
  if (call.differs) drawOdd(context, view, bar);
  if (view.chosen.has(call) || call === view.hovered) {
    context.strokeStyle = colours.ink;
    context.lineWidth = view.chosen.has(call) ? 2 : 1;
    context.strokeRect(x - 1, y - 1, w + 2, h + 2);
  }
  if (w > 30 && h > 12) drawLabel(context, call, bar, colour, waitedUntil);
}

// A call that only one of two runs made: framed, and marked with the sign of its run.
function drawOdd(context, { colours, model }, { x, y, w, h }) {
  context.strokeStyle = context.fillStyle = model.sign === "+" ? colours.good : colours.bad;
  context.lineWidth = 2.5;
  context.strokeRect(x, y, w, h);
  context.font = `700 14px ${FONT}`;
  context.textAlign = "center";
  context.fillText(model.sign, x + w / 2, y - 3);
  context.textAlign = "left";
}

// The label stands after the hatched part if there is room, so that it can be read.
function drawLabel(context, { op, bucket, bytes: size }, { x, y, w, h }, colour, waitedUntil) {
  const name = bucket >= 0 ? `${op} bucket ${bucket}` : op;
  const texts = size ? [`${name}  ${bytes(size)}`, name] : [name];
  if (bucket >= 0) texts.push(`bucket ${bucket}`, `b${bucket}`);
  const after = Math.max(x, waitedUntil);
  const start = x + w - after > 44 ? after : x;
  context.font = `600 11px ${FONT}`;
  const text = texts.find((one) => context.measureText(one).width <= x + w - start - 8);
  if (!text) return;
  if (start < waitedUntil - 2) {
    context.fillStyle = colour;
    context.fillRect(start + 2, y + 1, context.measureText(text).width + 5, h - 2);
  }
  context.fillStyle = isLight(colour) ? "#17191c" : "#ffffff";
  context.fillText(text, start + 4, y + h / 2 + 0.5);
}

function isLight(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 150;
}

// Of a collective: a line at the moment at which the last rank entered, with a dot there. Of a message: an arrow.
function drawLink(context, { scale, colours, lanes }, step, chosen) {
  const { begin, ready, sender, last, calls } = step;
  if (calls.length < 2) return;
  context.strokeStyle = chosen ? colours.ink : colours.soft;
  context.fillStyle = context.strokeStyle;
  context.globalAlpha = chosen ? 1 : 0.55;
  context.lineWidth = chosen ? 1.5 : 1;
  const middle = (call) => call.top + lanes[0].bar / 2;
  const one = calls.find((call) => call.rank === (sender < 0 ? last : sender));
  if (sender >= 0) {
    const receiver = calls.find((call) => call !== one);
    drawArrow(context, [scale(one.begin), middle(one)], [scale(receiver.end), middle(receiver)]);
  } else if (ready >= 0) {
    const x = scale(begin + ready);
    const ys = calls.map(middle);
    context.setLineDash(chosen ? [] : [2, 3]);
    path(context, [x, Math.min(...ys)], [x, Math.max(...ys)]).stroke();
    context.setLineDash([]);
    context.beginPath();
    context.arc(x, middle(one), chosen ? 4 : 2.5, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
}

function drawArrow(context, [x1, y1], [x2, y2]) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const side = (turn) => [x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn)];
  path(context, [x1, y1], [x2, y2]).stroke();
  path(context, [x2, y2], side(-0.4), side(0.4)).fill();
}

function drawTicks(context, { scale, width, colours }, { logs, notes, ticks }) {
  let drawn = null;
  for (const { begin, stream } of logs) {
    const x = Math.round(scale(begin));
    const bad = stream === 2;
    if (!stream || x < 0 || x > width || (x === drawn && !bad)) continue;
    drawn = x;
    context.fillStyle = bad ? colours.bad : colours.soft;
    context.fillRect(x, ticks + 1, 1, 6);
  }
  context.fillStyle = colours.focus;
  for (const note of notes) {
    const x = scale(note.begin);
    const y = ticks + 4;
    if (x >= -4 && x <= width + 4) path(context, [x, y - 4], [x + 4, y], [x, y + 4], [x - 4, y]).fill();
  }
}

function drawEnd(context, { scale, width, colours }, { life, top, height }) {
  const x = scale(life.end);
  if (!life.bad || x < 0 || x > width) return;
  context.fillStyle = colours.bad;
  context.fillRect(x - 1, top, 2, height);
  const atEdge = x > width - 20;
  context.font = `700 15px ${FONT}`;
  context.textAlign = atEdge ? "right" : "left";
  context.fillText("✘", x + (atEdge ? -4 : 4), top + height / 2);
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

// What lies outside of the chosen range is veiled.
function drawRange(context, { range, scale, width, height, colours }) {
  if (!range || range.whole) return;
  const [from, to] = [range.begin, range.end].map((moment) => Math.max(0, Math.min(width, scale(moment))));
  context.globalAlpha = 0.72;
  context.fillStyle = colours.page;
  context.fillRect(0, 0, from, height);
  context.fillRect(to, 0, width - to, height);
  context.globalAlpha = 1;
  context.fillStyle = colours.focus;
  if (from > 0) context.fillRect(from - 1, 0, 2, height);
  if (to < width) context.fillRect(to - 1, 0, 2, height);
}
