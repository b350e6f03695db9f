// Where the time of a rank went between two moments: the rules of `lab/features/stragglers/timing.py`, which a test compares.

import { visibleCalls } from "lab/spans";

const UNSEEN = -2; // nobody was seen to wait for the handle of the call

// `hidden` is communication beside the rank's own work, and so part of `own`.
export function shareOf(lane, begin, end) {
  const [from, to] = [Math.max(begin, lane.from), Math.min(end, lane.to)];
  const [blocked, waiting, flying, unseen] = [[], [], [], []];
  for (const call of visibleCalls(lane, from, to)) {
    if (call.open) continue;
    const whole = [call.begin, call.end];
    flying.push(whole);
    if (call.held === UNSEEN) unseen.push(whole);
    if (call.held < 0) continue;
    const [held, freed] = [call.begin + call.held, call.end - call.freed];
    blocked.push([held, freed]);
    if (call.step)
      waiting.push([held, call.wait < 0 ? freed : Math.min(Math.max(call.begin + call.wait, held), freed)]);
  }
  const total = Math.max(0, to - from);
  const sum = (spans) => length(spans, from, to);
  const [stood, waited] = [sum(blocked), sum(waiting)];
  const unknown = sum([...blocked, ...unseen]) - stood;
  return {
    total,
    waiting: waited,
    communicating: Math.max(0, stood - waited),
    unknown,
    own: Math.max(0, total - stood - unknown),
    hidden: Math.max(0, sum(flying) - stood - unknown),
  };
}

// Shares added up: of several ranks, or of several stretches of one.
export function addShares(shares) {
  const sums = { total: 0, waiting: 0, communicating: 0, unknown: 0, own: 0, hidden: 0 };
  for (const share of shares) for (const name in sums) sums[name] += share[name];
  return sums;
}

// Microseconds between two moments that spans cover together; where they overlap, once.
function length(spans, from, to) {
  let [total, until] = [0, from];
  for (const [begin, end] of spans.sort((a, b) => a[0] - b[0])) {
    const last = Math.min(end, to);
    if (last <= until) continue;
    total += last - Math.max(begin, until);
    until = last;
  }
  return total;
}

// Calls that began between two moments, by operation, the longest first: how many, bytes, microseconds inside.
export function callsBetween(ranks, begin, end) {
  const found = new Map();
  for (const rank of ranks) {
    for (const call of visibleCalls(rank, begin, end)) {
      if (call.begin < begin) continue;
      const row = found.get(call.op) ?? { op: call.op, calls: 0, bytes: 0, inside: 0 };
      row.calls += 1;
      row.bytes += call.bytes;
      row.inside += Math.min(call.end, end) - call.begin;
      found.set(call.op, row);
    }
  }
  return [...found.values()].sort((a, b) => b.inside - a.inside);
}
