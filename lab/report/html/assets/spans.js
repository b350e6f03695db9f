// Which spans of a lane can be seen, and which are worth a rectangle of their own.

import { lowerBound } from "lab/model";

// For each call the latest end of it and all before it in its lane: grows, so that it can be searched.
export function latestEnds(model) {
  const latest = new Float64Array(model.callCount);
  for (const { from, to } of model.slices.values()) {
    let most = Number.NEGATIVE_INFINITY;
    for (let i = from; i < to; i += 1) {
      most = Math.max(most, model.end[i]);
      latest[i] = most;
    }
  }
  return latest;
}

// First and last call (exclusive) of a lane that may show between two moments.
export function visibleCalls(model, latest, rank, begin, end) {
  const slice = model.slices.get(rank);
  if (!slice) return [0, 0];
  const from = lowerBound(latest, begin, slice.from, slice.to);
  return [from, lowerBound(model.begin, end, from, slice.to)];
}

// The call under a point: exactly in its row, but with some tolerance in time for what is narrower than a pixel.
export function callAt(model, latest, rank, row, moment, tolerance) {
  const [from, to] = visibleCalls(model, latest, rank, moment - tolerance, moment + tolerance);
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  for (let i = to - 1; i >= from; i -= 1) {
    if (model.calls.row[i] !== row || model.end[i] < moment - tolerance) continue;
    const off = Math.max(0, model.begin[i] - moment, moment - model.end[i]);
    if (off < distance) {
      best = i;
      distance = off;
    }
    if (off === 0) break;
  }
  return best;
}
