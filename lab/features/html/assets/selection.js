// Choosing a range on the timeline: a drag with Shift, or any drag while `view.selecting`.

const LEAST_PX = 4;

export function startSelection(canvas, view, range, redraw) {
  let from = null;

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || !(view.selecting || event.shiftKey)) return;
    from = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from === null || Math.abs(event.offsetX - from) < LEAST_PX) return;
    view.dragged = true;
    range.set(view.scale.invert(from), view.scale.invert(event.offsetX));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, () => {
      from = null;
    });
  }
  range.onChange(redraw);
}
