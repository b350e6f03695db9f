// The critical path on the timeline: a line along the lanes of the ranks whose time the run was made of.

const MOST_JUMPS = 600;

export function drawPath(context, view) {
  const { path, scale, laneOf, colours, width } = view;
  if (!path.length) return;
  const [first, last] = scale.domain();
  const shown = between(path, first, last);
  context.strokeStyle = colours.path;
  context.lineWidth = 3;
  context.lineCap = "butt";
  const level = (rank) => laneOf.get(rank).ticks - 1.5;
  const covered = new Map(); // by rank: what is narrower than a pixel is drawn once
  context.beginPath();
  let before = null;
  for (const { rank, begin, end } of shown) {
    const [left, right] = [Math.max(-4, scale(begin)), Math.min(width + 4, scale(end))];
    const y = level(rank);
    if (right > (covered.get(rank) ?? -9)) {
      context.moveTo(left, y);
      context.lineTo(Math.max(right, left + 1), y);
      covered.set(rank, Math.max(right, left + 1));
    }
    if (before !== null && before !== rank && shown.length <= MOST_JUMPS) {
      context.moveTo(left, level(before));
      context.lineTo(left, y);
    }
    before = rank;
  }
  context.stroke();
}

// Pieces that show between two moments; they follow one another.
function between(path, first, last) {
  let [low, high] = [0, path.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (path[middle].end < first) low = middle + 1;
    else high = middle;
  }
  const found = [];
  for (let i = low; i < path.length && path[i].begin <= last; i++) found.push(path[i]);
  return found;
}
