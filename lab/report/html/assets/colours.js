// Colours of operations and phases, and those of the theme as a canvas needs them.

const OPERATIONS = [
  ["all_reduce", "#4474b0"],
  ["reduce_scatter", "#2b8c87"],
  ["reduce", "#7ba3d4"],
  ["all_gather", "#d9822b"],
  ["gather", "#e6a960"],
  ["broadcast", "#8560b8"],
  ["scatter", "#ae8fd6"],
  ["all_to_all", "#c2518f"],
  ["send", "#5a9a4a"],
  ["recv", "#8dbe77"],
  ["barrier", "#838a94"],
  ["monitored_barrier", "#838a94"],
];
const PHASES = { forward: "#3f78c9", backward: "#cc7a29", loss: "#9360c4", step: "#3d9455", zero_grad: "#7d858f" };

// `all_gather_into_tensor` is a kind of `all_gather`: the longest name that it begins with decides.
export function operationColour(op) {
  const fitting = OPERATIONS.filter(([name]) => op.startsWith(name));
  fitting.sort((a, b) => b[0].length - a[0].length);
  return fitting.length ? fitting[0][1] : "#838a94";
}

export function phaseColour(phase) {
  return PHASES[phase] ?? "#838a94";
}

export function themeColours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["page", "card", "ink", "soft", "line", "lane", "lane-live", "hatch", "bad", "warn", "good", "focus"];
  const result = Object.fromEntries(names.map((name) => [name, colour(name)]));
  probe.remove();
  return result;
}
