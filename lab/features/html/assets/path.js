// The critical path, put together from the calls that it leads through.

// Pieces in the order of time: `rank`, `begin`, `end`, and the call that the piece passed in; null: own work.
export function pathOf({ path, calls }) {
  if (!path) return [];
  const pieces = [];
  let [rank, at] = path;
  const through = calls.filter((call) => call.path);
  through.sort((a, b) => freed(a) - freed(b) || ready(a) - ready(b));
  for (const call of through) {
    pieces.push({ rank, begin: at, end: ready(call), call: null });
    pieces.push({ rank: call.rank, begin: ready(call), end: freed(call), call });
    [rank, at] = [call.rank, freed(call)];
  }
  pieces.push({ rank, begin: at, end: path[2], call: null });
  return pieces.filter((piece) => piece.end > piece.begin);
}

// When everybody had entered whom a call needs, and when it let its rank go on.
function ready(call) {
  return Math.min(call.begin + Math.max(0, call.wait), freed(call));
}

function freed(call) {
  return call.end - call.freed;
}
