// Which calls of a lane can be seen, and which is under the pointer.

// The calls that show between two moments. They are in the order in which they began; `reach` says of each the latest
// end of all up to it, so that what ended before need not be looked at.
export function visibleCalls({ calls, reach }, begin, end) {
  const found = [];
  for (let i = firstFrom(reach, begin); i < calls.length && calls[i].begin <= end; i++) {
    if (calls[i].end >= begin) found.push(calls[i]);
  }
  return found;
}

export function reachOf(calls) {
  let latest = Number.NEGATIVE_INFINITY;
  return Float64Array.from(calls, ({ end }) => {
    latest = Math.max(latest, end);
    return latest;
  });
}

// The first place from which on numbers that never fall are at least so large.
function firstFrom(numbers, least) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
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
