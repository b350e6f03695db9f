// Which calls of a lane can be seen, and which is under the pointer.

// The calls that may show between two moments.
export function visibleCalls(lane, begin, end) {
  const from = lowerBound(lane.calls, "latest", begin);
  return lane.calls.slice(from, lowerBound(lane.calls, "begin", end, from));
}

// The call under a point: exactly in its row, but with some tolerance in time for what is narrower than a pixel.
export function callAt(lane, row, moment, tolerance) {
  const calls = visibleCalls(lane, moment - tolerance, moment + tolerance).reverse();
  const near = calls.filter((call) => call.row === row && call.end >= moment - tolerance);
  return nearest(near, (call) => Math.max(0, call.begin - moment, moment - call.end));
}

// The first item of the smallest distance; null where there is none.
export function nearest(items, distance) {
  return items.reduce((best, one) => (best && distance(best) <= distance(one) ? best : one), null);
}

// Index of the first item at or after a value, in a list that grows with the key.
function lowerBound(items, key, value, from = 0) {
  let low = from;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle][key] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
