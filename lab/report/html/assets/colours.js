// Colours of phases, and those of the theme as a canvas needs them.

const PHASES = { forward: "#3f78c9", backward: "#cc7a29", loss: "#9360c4", step: "#3d9455", zero_grad: "#7d858f" };

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
