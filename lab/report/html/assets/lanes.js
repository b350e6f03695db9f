// Where everything stands on the timeline, in CSS pixels, and the names of the lanes beside the canvas.

export const AXIS = 28;
const LABELS = 14;
const TICKS = 8;
const GAP = 6;

// A lane for each rank: phases are named in a strip at its top, bars follow, ticks of log lines are at its bottom.
export function layLanes({ ranks, marks }) {
  const many = ranks.length > 12;
  const pitch = many ? 12 : 20;
  const labels = marks.length && !many ? LABELS : 3;
  let top = AXIS;
  const lanes = ranks.map((one) => {
    const rows = one.calls.reduce((most, call) => Math.max(most, call.row + 1), 1);
    const height = labels + rows * pitch + TICKS;
    const lane = { ...one, top, height, rows, pitch, bars: top + labels, bar: pitch - 3, ticks: top + height - TICKS };
    for (const call of one.calls) call.top = lane.bars + call.row * pitch;
    top += height + (many ? 2 : GAP);
    return lane;
  });
  return { lanes, height: top + 4 };
}

// The names are in the page, one for each lane; here they come to stand beside it.
export function placeLanes(list, lanes, tall) {
  list.style.height = `${tall}px`;
  lanes.forEach(({ top, height }, i) => {
    Object.assign(list.children[i].style, { top: `${top}px`, height: `${height}px` });
  });
}
