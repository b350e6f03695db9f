// Presentation: one picture per screen, with Next and Back, and what moves between before and after in motion.

import { element } from "lab/dom";
import { drawScene, enlarge, play, readScene } from "lab/scene";

const MOTION_MS = 1600;
const still = matchMedia("(prefers-reduced-motion: reduce)");

// `slides.current()` is a title, a place, a position and the markup of a picture, or null; `slides.move(by)` returns
// whether there was another one.
export function startPresentation(slides, opener) {
  const buttons = {
    back: ["Back", "←", () => go(-1)],
    next: ["Next", "→", () => go(1)],
    full: ["Full screen", "F", toggleFull],
    close: ["Close", "Esc", close],
  };
  const made = Object.entries(buttons).map(([id, [name, key, act]]) => {
    const button = element("button", { type: "button", id: `show-${id}` }, name, " ", element("kbd", {}, key));
    button.onclick = act;
    return button;
  });
  const [title, position] = [element("h2", { id: "show-title" }), element("p", { class: "show-position" })];
  const [place, told] = [element("p", { class: "show-place" }), element("p", { class: "show-told", role: "status" })];
  const stage = element("div", { class: "show-stage" });
  const foot = element("div", { class: "show-foot" }, told, element("div", { class: "tools" }, ...made));
  const head = element("div", { class: "show-head" }, title, position, place);
  const parts = { role: "dialog", "aria-modal": "true", "aria-labelledby": "show-title", class: "show", id: "show" };
  const show = element("div", parts, head, stage, foot);
  show.hidden = true;
  document.body.append(show);
  let [scene, drawn, motion, after, focus, returnTo] = [null, null, null, false, 0, null];

  function open() {
    if (!show.hidden || !slides.current()) return;
    returnTo = document.activeElement;
    show.hidden = false;
    for (const other of document.body.children) other.inert = other !== show;
    document.documentElement.classList.add("presenting");
    render(false);
    document.getElementById("show-next").focus();
  }

  function close() {
    motion?.stop();
    if (document.fullscreenElement) document.exitFullscreen();
    show.hidden = true;
    for (const other of document.body.children) other.inert = false;
    document.documentElement.classList.remove("presenting");
    returnTo?.focus();
  }

  function toggleFull() {
    if (document.fullscreenElement) document.exitFullscreen();
    else show.requestFullscreen?.().catch(() => {}); // a browser may refuse; the presentation fills the window anyway
  }

  // To the other side of the picture, or to another picture.
  function go(by) {
    if (scene?.moves && after !== by > 0) return turn(by > 0);
    if (slides.move(by)) render(by < 0);
  }

  function render(finished) {
    motion?.stop();
    const slide = slides.current();
    if (!slide) return;
    scene = slide.markup ? readScene(slide.markup) : null;
    [after, focus] = [finished, 0];
    title.textContent = slide.title;
    place.textContent = slide.place;
    draw();
    tell();
  }

  function draw() {
    motion?.stop();
    const unit = Math.max(0.5, Math.min(innerWidth / 1920, innerHeight / 1080));
    stage.dataset.side = after ? "after" : "before";
    if (!scene?.moves) {
      drawn = null;
      if (scene) enlarge(scene, stage.clientWidth, stage.clientHeight, stage, unit);
      else stage.replaceChildren("This step has no picture.");
      return;
    }
    drawn = drawScene(scene, stage.clientWidth / unit, stage.clientHeight / unit, focus);
    stage.replaceChildren(drawn.svg);
  }

  async function turn(forward) {
    motion?.stop();
    after = forward;
    tell();
    if (still.matches || !drawn) {
      stage.dataset.side = after ? "after" : "before";
      return;
    }
    stage.dataset.side = "moving";
    motion = play(drawn, !forward, MOTION_MS);
    const own = motion;
    await own.done;
    if (own === motion) stage.dataset.side = after ? "after" : "before";
  }

  function tell() {
    const slide = slides.current();
    position.textContent = [slide.position, scene?.moves ? (after ? "after" : "before") : ""]
      .filter(Boolean)
      .join(" · ");
    const lines = drawn?.sender ?? null;
    const which = after && lines !== null ? `Arrows: what rank ${lines} sends; ↑ and ↓ choose another rank.` : "";
    told.textContent = [after || !scene?.moves ? scene?.judged || scene?.told : scene.told, which]
      .filter(Boolean)
      .join(" ");
  }

  function refocus(by) {
    focus += by;
    draw();
    tell();
  }

  const keys = {
    ArrowRight: () => go(1),
    PageDown: () => go(1),
    " ": () => go(1),
    ArrowLeft: () => go(-1),
    PageUp: () => go(-1),
    Backspace: () => go(-1),
    ArrowDown: () => refocus(1),
    ArrowUp: () => refocus(-1),
    f: toggleFull,
    p: close,
    Escape: close,
  };
  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (show.hidden) {
      if (key !== "p" || event.target.matches("input, select, textarea")) return;
      open();
    } else if (key in keys) keys[key]();
    else {
      if (key !== "Tab" && key !== "Enter") event.stopImmediatePropagation();
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation(); // keys of the page behind mean nothing now
  }
  addEventListener("keydown", press, true);
  stage.addEventListener("click", () => go(1));
  addEventListener("resize", () => {
    if (!show.hidden) draw();
  });
  if (opener) opener.onclick = open;
  return {
    // The picture that is shown has changed; a `fresh` one has not been seen yet, and its chunks begin to move.
    refresh(fresh) {
      if (show.hidden) return;
      render(!fresh && after);
      if (fresh && scene?.moves) turn(true);
    },
  };
}
