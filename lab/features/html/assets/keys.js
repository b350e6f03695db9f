// Keys of the whole page. In a field they mean what they always mean.

export function startKeys(choice, timeline, range) {
  const actions = {
    ArrowLeft: () => choice.move(-1),
    ArrowRight: () => choice.move(1),
    "+": () => timeline.zoomBy(1.6),
    "=": () => timeline.zoomBy(1.6),
    "-": () => timeline.zoomBy(1 / 1.6),
    0: timeline.showAll,
    f: timeline.showStep,
    r: () => range?.set(...timeline.shown()),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    if (event.key === "Escape") {
      choice.set(0);
      timeline.hideTip();
      return;
    }
    if (event.target.matches("pre, .scroll")) return;
    if (event.shiftKey && event.key.startsWith("Arrow")) {
      timeline.pan({ ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key] ?? 0);
    } else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  });
}
