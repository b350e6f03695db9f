// Where everything stands on the timeline, in CSS pixels, and the names of the lanes beside the canvas.

export const AXIS = 28;
const LABELS = 14;
const TICKS = 8;
const GAP = 6;
const HEAD = 26;

// A lane for each rank, or for several that are alike, of which it shows the first; where these are opened (`open` has
// the first of them), each has its own below the head. Phases are named in a strip at the top of a lane, bars
// follow, ticks of log lines are at its bottom.
export function layLanes({ lanes: groups, ranks, marks }, open) {
  const rankOf = new Map(ranks.map((one) => [one.rank, one]));
  const wanted = groups.flatMap((of) => (open.has(of[0]) ? [{ head: of }, ...of.map((rank) => [rank])] : [of]));
  const many = wanted.length > 12;
  const pitch = many ? 12 : 20;
  const labels = marks.length && !many ? LABELS : 3;
  let top = AXIS;
  const lanes = wanted.map((of) => {
    const lane = of.head ? headLane(of.head, top) : rankLane(of, top);
    top += lane.height + (many ? 2 : GAP);
    return lane;
  });
  return { lanes, height: top + 4 };

  function headLane(of, top) {
    const nothing = { life: {}, calls: [], reach: [], marks: [], logs: [], notes: [] };
    return {
      ...nothing,
      of,
      head: true,
      top,
      height: HEAD,
      rows: 1,
      pitch,
      bars: top,
      bar: pitch - 3,
      ticks: top + HEAD,
    };
  }

  function rankLane(of, top) {
    const members = of.map((rank) => rankOf.get(rank));
    const rows = members[0].calls.reduce((most, call) => Math.max(most, call.row + 1), 1);
    const height = labels + rows * pitch + TICKS;
    const bars = top + labels;
    for (const { calls } of members) for (const call of calls) call.top = bars + Math.min(call.row, rows - 1) * pitch;
    const place = { top, height, rows, pitch, bars, bar: pitch - 3, ticks: top + height - TICKS };
    return { ...members[0], ...shared(members), ...place, of, members };
  }
}

// What a lane of several ranks has of all of them: what they printed and noted, and from when to when they were in a call.
function shared(members) {
  if (members.length === 1) return {};
  const byTime = (name) => members.flatMap((one) => one[name]).sort((a, b) => a.begin - b.begin);
  const [first, ...others] = members;
  const same = others.every(({ calls }) => calls.length === first.calls.length);
  const spread = new Map();
  for (const [i, call] of same ? first.calls.entries() : []) {
    const all = members.map(({ calls }) => calls[i]);
    spread.set(call, [Math.min(...all.map(({ begin }) => begin)), Math.max(...all.map(({ end }) => end))]);
  }
  return { logs: byTime("logs"), notes: byTime("notes"), spread };
}

// The bars of a step: those of its calls, and in a lane of several ranks what stands there for one of them.
export function barsOf(step, lanes) {
  const bars = new Set(step?.calls);
  for (const { of, members, spread } of lanes) {
    if (!spread?.size) continue;
    for (const call of step?.calls ?? []) {
      const member = of.indexOf(call.rank);
      if (member > 0) bars.add(members[0].calls[members[member].calls.indexOf(call)]);
    }
  }
  return bars;
}

// The names are in the page, one for each lane that there can be; here those that there are come to stand beside it.
export function placeLanes(list, lanes, tall) {
  list.style.height = `${tall}px`;
  const names = [...list.children];
  const [alone, shared] = ["rank", "first"].map(
    (key) => new Map(names.map((name) => [Number(name.dataset[key]), name])),
  );
  for (const name of names) name.hidden = true;
  for (const { of, head, top, height } of lanes) {
    const name = (of.length > 1 ? shared : alone).get(of[0]);
    name.hidden = false;
    name.firstElementChild.ariaExpanded &&= String(Boolean(head));
    Object.assign(name.style, { top: `${top}px`, height: `${height}px` });
  }
}
