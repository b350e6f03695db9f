// Begins the page of a run: unpacks the data, then every part of the page that has an element.

import { makeAddress } from "lab/address";
import { makeChoice } from "lab/choice";
import { findLine } from "lab/dom";
import { startFilter } from "lab/filter";
import { startFolds } from "lab/fold";
import { startKeys } from "lab/keys";
import { startLogs } from "lab/logs";
import { readModel } from "lab/model";
import { pathOf } from "lab/path";
import { startPresentation } from "lab/present";
import { startPrint } from "lab/print";
import { makeRange } from "lab/range";
import { startStep } from "lab/step";
import { startSteps } from "lab/steps";
import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";
import { startTime } from "lab/time";
import { startTimeline } from "lab/timeline";
import { integer } from "lab/words";

export async function start() {
  const model = await readModel(byId("data"));
  const [choice, range, address, path] = [makeChoice(model.steps), makeRange(model.span), makeAddress(), pathOf(model)];
  const timeline = startTimeline(byId("timeline"), model, choice, { logs: startLogs(model.logs), range, path });
  startTheme(byId("theme"), timeline.restyle);
  startKeys(choice, timeline, range);
  startPrint();
  startFolds();
  startZoom(timeline, path);
  for (const table of document.querySelectorAll(".sortable")) makeSortable(table);
  startTime(model, range, timeline, address);
  if (model.steps.length) {
    startSteps(choice);
    startStep(model, choice);
    startSlider(model, choice);
    startFilter(model, choice, address);
    startPresentation(makeSlides(model, choice), byId("present"));
    // What went wrong is shown first; where nothing did, the first step.
    choice.set(model.steps.find((step) => step.state !== "completed")?.number ?? 1);
    startLinks(choice, address);
  }
  address.start();
  document.documentElement.dataset.ready = "true";
}

function startZoom(timeline, path) {
  byId("zoom-in").onclick = () => timeline.zoomBy(2);
  byId("zoom-out").onclick = () => timeline.zoomBy(0.5);
  byId("zoom-all").onclick = timeline.showAll;
  byId("zoom-step").onclick = timeline.showStep;
  startToggle(byId("show-path"), (on) => timeline.showPath(on ? path : []));
  startToggle(byId("select"), timeline.select);
}

function startToggle(button, change) {
  button?.addEventListener("click", () => {
    const on = button.ariaPressed !== "true";
    button.ariaPressed = String(on);
    change(on);
  });
}

// `#step-12` in the address chooses a step and brings it into view; a choice stands in the address.
function startLinks(choice, address) {
  address.bind("step", (number) => {
    choice.set(Number(number));
    byId("movement").scrollIntoView();
  });
  choice.onChange((step, origin) => {
    if (origin !== "filter") address.put("step", step?.number);
  });
}

function startSlider({ steps }, choice) {
  const slider = byId("slider");
  slider.oninput = () => choice.set(choice.shown[slider.valueAsNumber - 1].number);
  byId("previous").onclick = () => choice.move(-1);
  byId("next").onclick = () => choice.move(1);
  choice.onChange((step) => {
    const [place, shown] = [choice.place() + 1, choice.shown.length];
    slider.max = Math.max(1, shown);
    slider.disabled = !shown;
    if (choice.stands()) slider.value = place;
    byId("position").textContent = told(step, choice.stands() ? place : 0, shown);
  });

  function told(step, place, shown) {
    if (!step) return "none chosen";
    if (shown === steps.length) return `${integer(step.number)} of ${integer(shown)}`;
    return place
      ? `${integer(place)} of ${integer(shown)}, step ${integer(step.number)}`
      : `step ${integer(step.number)}`;
  }
}

// The steps that are listed, each a picture of the presentation.
function makeSlides({ steps, pictures }, choice) {
  return {
    current() {
      const step = steps[choice.number - 1] ?? choice.shown[0];
      if (!step) return null;
      const [{ at, phase }] = step.calls;
      const line = findLine(at)?.textContent.trim();
      const place = [at, phase && `in ${phase}`, line].filter(Boolean).join("   ");
      const position = `${integer(choice.stands() ? choice.place() + 1 : step.number)} of ${integer(choice.shown.length)}`;
      return { title: step.title, place, position, markup: pictures[step.picture] };
    },
    move(by) {
      const before = choice.number;
      choice.move(by);
      return choice.number !== before;
    },
  };
}

function byId(id) {
  return document.getElementById(id);
}
