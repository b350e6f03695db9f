// Which calls of a lane can be seen, and which is under the pointer.

// The calls that show between two moments.
export function visibleCalls(lane, begin, end) {
  return lane.calls.filter((call) => call.end >= begin && call.begin <= end);
}

// The call under a point: exactly in its row, but with some tolerance in time for what is narrower than a pixel.
export function callAt(lane, row, moment, tolerance) {
  const near = visibleCalls(lane, moment - tolerance, moment + tolerance).filter((call) => call.row === row);
  return nearest(near.reverse(), (call) => Math.max(0, call.begin - moment, moment - call.end));
}

// The first item of the smallest distance; null where there is none.
export function nearest(items, distance) {
  return items.reduce((best, one) => (best && distance(best) <= distance(one) ? best : one), null);
}
