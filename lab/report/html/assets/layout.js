// Where everything stands on the timeline, in CSS pixels.

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
    const rows = model.slices.get(rank)?.depth ?? 1;
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
