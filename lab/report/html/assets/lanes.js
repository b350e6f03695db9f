// Where everything stands on the timeline, in CSS pixels, and the names of the lanes beside the canvas.

import { element } from "lab/dom";

export const AXIS = 28;
const LABELS = 14;
const TICKS = 8;
const GAP = 6;

// A lane for each rank: phases are named in a strip at its top, bars follow, ticks of log lines are at its bottom.
export function layLanes(model) {
  const many = model.ranks.length > 12;
  const pitch = many ? 12 : 20;
  const labels = model.marks.rank.length && !many ? LABELS : 3;
  const lanes = [];
  let top = AXIS;
  for (const { rank } of model.ranks) {
    const rows = model.slices.get(rank)?.rows ?? 1;
    const height = labels + rows * pitch + TICKS;
    lanes.push({ rank, top, height, rows, pitch, bars: top + labels, bar: pitch - 3, ticks: top + height - TICKS });
    top += height + (many ? 2 : GAP);
  }
  return { lanes, laneOf: new Map(lanes.map((lane) => [lane.rank, lane])), height: top + 4 };
}

export function laneAt(lanes, y) {
  return lanes.find((lane) => y >= lane.top && y < lane.top + lane.height) ?? null;
}

export function rowTop(lane, row) {
  return lane.bars + row * lane.pitch;
}

// Text that can be read, selected and searched.
export function fillLanes(list, model, lanes, height) {
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
}
